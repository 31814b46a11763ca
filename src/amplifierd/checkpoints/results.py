"""What the questions about checkpoints are answered with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .manifest import Difference, ancestors
from .records import Checkpoint


@dataclass(frozen=True)
class Changes:
    """What differs between two moments. Paths are relative; a directory, named where nothing in it is, ends in `/`.

    `diff` is unified text, cut off when it is too long. Unless both sides are `complete`, `reason` says what is not
    known.
    """

    added: tuple[str, ...]
    modified: tuple[str, ...]
    deleted: tuple[str, ...]
    diff: str
    is_cut: bool
    complete: bool
    reason: str


@dataclass(frozen=True)
class UndoResult:
    """What an undo did.

    `foreign` are the paths that were changed by someone else since. Unless it is `done`, they are why nothing at all
    was touched. `restored` are the paths that were brought back, `not_empty` directories that stay since they hold what
    the undone changes did not bring. `undo(before, after)` takes it back.
    """

    done: bool
    restored: tuple[str, ...]
    foreign: tuple[str, ...]
    not_empty: tuple[str, ...]
    before: Checkpoint | None
    after: Checkpoint | None


def paths_of(changed: Sequence[Difference]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return what was added, modified and deleted."""
    within = {above for each in changed for above in ancestors(each.path)}
    added, modified, deleted = list[str](), list[str](), list[str]()
    for each in changed:
        kinds = added if each.before is None else deleted if each.after is None else modified
        if not _is_directory(each):
            kinds.append(each.path)
        elif kinds is modified or each.path not in within:
            kinds.append(f"{each.path}/")
    return tuple(added), tuple(modified), tuple(deleted)


def _is_directory(each: Difference) -> bool:
    return all(side is None or side.kind == "directory" for side in (each.before, each.after))
