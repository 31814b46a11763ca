"""Tables of the simulated PostgreSQL: versions that never change, so that whoever reads one sees one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Key = tuple[Any, ...]
Row = dict[str, Any]
Changes = Mapping[Key, Row | None]
"""Rows by their primary keys; None stands for one that is gone."""


class Json(str):
    """A value of the types `json` and `jsonb`, as text."""

    __slots__ = ()


@dataclass(frozen=True)
class Column:
    """A column; `default` computes the value of a row that says none."""

    name: str
    type: str
    default: Callable[[Any], Any] | None = None
    is_identity: bool = False


@dataclass(frozen=True)
class Unique:
    """Columns of which no two rows may have the same values; with `condition` only those rows for which it holds."""

    columns: tuple[str, ...]
    condition: Callable[[Row], bool] | None = None


@dataclass(frozen=True)
class Definition:
    """What a table is like. One without a primary key has a hidden one."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    uniques: tuple[Unique, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def key_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.key)


class Table:
    """One version of a table: its rows by the first column of the key, and then by the whole of it."""

    __slots__ = ("definition", "parts")

    def __init__(self, definition: Definition, parts: dict[Any, dict[Key, Row]] | None = None) -> None:
        self.definition, self.parts = definition, parts or {}

    def __iter__(self) -> Iterator[Row]:
        for part in self.parts.values():
            yield from part.values()

    def at(self, first: Any) -> Iterable[Row]:
        """Return the rows whose key begins with a value."""
        return self.parts.get(first, _NO_ROWS).values()

    def find(self, key: Key) -> Row | None:
        return self.parts.get(key[0], _NO_ROWS).get(key)

    def changed(self, changes: Changes) -> Table:
        """Return the version after some changes; this one stays as it is."""
        parts, own = dict(self.parts), set()
        for key, row in changes.items():
            first = key[0]
            if first not in own:
                own.add(first)
                parts[first] = dict(parts.get(first, _NO_ROWS))
            if row is None:
                parts[first].pop(key, None)
            else:
                parts[first][key] = row
        return Table(self.definition, {first: part for first, part in parts.items() if part})


_NO_ROWS: dict[Key, Row] = {}
