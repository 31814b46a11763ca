"""Statements of the store, from their SQL to what runs on the simulated tables.

It knows as much of PostgreSQL as the store's own statements use, and refuses everything else by name. As there, all
parts of a statement see the tables as they were when it began.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import sqlglot
from sql_tables import Definition, Json, Key, Row, Table
from sqlglot import exp

Compute = Callable[["Run"], Any]

_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%s")
_INTO = re.compile(r"\bINSERT INTO (\w+)")
_UNITS_S = {"s": 1.0, "second": 1.0, "seconds": 1.0, "min": 60.0, "minute": 60.0, "day": 86_400.0, "days": 86_400.0}
_COMPARE = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}
_AGGREGATES: dict[type[exp.Expression], Callable[[list[Any]], Any]] = {
    exp.Max: lambda values: max(values, default=None),
    exp.Min: lambda values: min(values, default=None),
    exp.Sum: lambda values: sum(values) if values else None,
    exp.Count: len,
}


class Transaction(Protocol):
    """What a statement needs of the transaction that it runs in."""

    now: float

    def table(self, name: str) -> Table: ...

    def lock(self, name: str, key: Key, *, shared: bool = False) -> None:
        """Lock a row, or raise what says that another transaction has it."""
        ...

    def next_number(self, name: str) -> int: ...

    def call(self, function: str, arguments: Sequence[Any]) -> Any: ...


@dataclass(slots=True)
class Run:
    """One execution of a statement: what it was given, the rows that it looks at, and what it is about to change."""

    transaction: Transaction
    values: dict[str, Any]
    frame: list[Any]
    pending: dict[str, dict[Key, Row | None]] = field(default_factory=dict)
    ctes: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    group: list[tuple[Any, ...]] = field(default_factory=list)
    tables: dict[str, Table] = field(default_factory=dict)
    known: dict[Query, Any] = field(default_factory=dict)

    def table(self, name: str) -> Table:
        """Return a table as it was when the statement began."""
        found = self.tables.get(name)
        if found is None:
            found = self.tables[name] = self.transaction.table(name)
        return found

    def write(self, name: str, key: Key, row: Row | None) -> None:
        self.transaction.lock(name, key)
        self.pending.setdefault(name, {})[key] = row


@dataclass(frozen=True)
class Answer:
    """What a statement returns: rows with names, how many it found or changed, and the changes that it makes."""

    names: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    count: int
    changes: dict[str, dict[Key, Row | None]]


@dataclass
class _Source:
    """Something that rows come from, in a place of the frame of its own."""

    slot: int
    alias: str
    columns: tuple[str, ...]
    rows: Callable[[Run], Iterable[Any]]
    table: str | None = None
    side: str = ""
    is_keyed: bool = False
    on: list[Compute] = field(default_factory=list)
    filters: list[Compute] = field(default_factory=list)

    @property
    def nothing(self) -> Row:
        return dict.fromkeys(self.columns)


@dataclass
class _Scope:
    sources: list[_Source]
    parent: _Scope | None
    merged: dict[str, Compute] = field(default_factory=dict)
    outputs: dict[str, Compute] = field(default_factory=dict)


@dataclass(frozen=True)
class _Window:
    """A sum that grows from row to row in an order, with its place in the frame."""

    slot: int
    compute: Compute
    order: list[tuple[Compute, bool]]


@dataclass(frozen=True, eq=False)
class Query:
    """Something that returns rows, with how many it returned or changed."""

    names: tuple[str, ...]
    run: Callable[[Run], tuple[list[tuple[Any, ...]], int]]


class Statement:
    """A statement, ready to run as often as it is given."""

    def __init__(self, text: str, definitions: Callable[[str], Definition]) -> None:
        count = iter(range(1000))
        named = _PLACEHOLDER.sub(lambda found: f":{found[1] or f'_{next(count)}'}", text)
        named = _INTO.sub(r'INSERT INTO "\1"', named)  # of a name such as "format" the parser would make something else
        compiler = _Compiler(definitions)
        self._query = compiler.query(sqlglot.parse_one(named, dialect="postgres"), None)
        self._slots, self._ctes = compiler.slots, compiler.cte_order

    def execute(self, transaction: Transaction, values: dict[str, Any]) -> Answer:
        run = Run(transaction, values, [None] * self._slots)
        for name, query in self._ctes:
            run.ctes[name], _ = query.run(run)
        rows, count = self._query.run(run)
        return Answer(self._query.names, [tuple(map(_given, row)) for row in rows], count, run.pending)


def _given(value: Any) -> Any:
    return json.loads(value) if isinstance(value, Json) else value


class _Compiler:
    def __init__(self, definitions: Callable[[str], Definition]) -> None:
        self._definitions = definitions
        self.slots = 0
        self.cte_order: list[tuple[str, Query]] = []
        self._cte_names: dict[str, tuple[str, ...]] = {}
        self._used: set[int] = set()
        self._has_aggregate = False
        self._windows: list[_Window] = []

    # --- statements

    def query(self, node: exp.Expression, parent: _Scope | None) -> Query:
        for cte in node.args["with_"].expressions if node.args.get("with_") else ():
            if isinstance(cte.this, exp.Union):
                query = self._recursive(cte, parent)
            else:
                query = self.query(cte.this, parent)
                self._cte_names[cte.alias] = query.names
            self.cte_order.append((cte.alias, query))
        match node:
            case exp.Select():
                return self._select(node, parent)
            case exp.Subquery():
                return self.query(node.this, parent)
            case exp.Insert():
                return self._insert(node, parent)
            case exp.Update():
                return self._update(node, parent)
            case exp.Delete():
                return self._delete(node, parent)
        raise NotImplementedError(f"the simulated database knows no {type(node).__name__}: {node.sql()}")

    def _recursive(self, cte: exp.CTE, parent: _Scope | None) -> Query:
        """Compile a query that goes on with what it found, until it finds nothing more."""
        name, first = cte.alias, self.query(cte.this.this, parent)
        names = tuple(one.name for one in cte.args["alias"].columns) or first.names
        self._cte_names[name] = names
        following = self.query(cte.this.expression, parent)

        def execute(run: Run) -> tuple[list[tuple[Any, ...]], int]:
            found, _ = first.run(run)
            latest = found
            while latest:
                run.ctes[name] = latest
                latest, _ = following.run(run)
                found = [*found, *latest]
            return found, len(found)

        return Query(names, execute)

    def _select(self, node: exp.Select, parent: _Scope | None) -> Query:
        scope = _Scope([], parent)
        if from_ := node.args.get("from_"):
            self._join(scope, from_.this, None)
            for join in node.args.get("joins") or ():
                self._join(scope, join.this, join)
        rest = self._place_conditions(scope, node.args.get("where"))
        before, self._has_aggregate = self._has_aggregate, False
        outside, self._windows = self._windows, []
        names, outputs, spread = self._outputs(scope, node.expressions)
        order = self._order(scope, node.args.get("order"))
        has_aggregate, self._has_aggregate = self._has_aggregate, before
        groups = (
            [self.compute(one, scope) for one in node.args["group"].expressions] if node.args.get("group") else None
        )
        limit = self._optional(node.args.get("limit"), scope)
        offset = self._optional(node.args.get("offset"), scope)
        locks = [
            (source, not lock.args["update"])
            for lock in node.args.get("locks") or ()
            for source in scope.sources
            if source.table and (not lock.expressions or source.alias in {one.name for one in lock.expressions})
        ]
        rows = self._rows(scope, rest, locks)
        windows, self._windows = self._windows, outside
        if windows:
            rows = _windowed(rows, windows, [source.slot for source in scope.sources])
        is_distinct = bool(node.args.get("distinct"))
        if has_aggregate or groups:
            together = None if groups or windows else self._all_of(scope, rest, locks)
            rows = together or _grouped(rows, groups, [one.slot for one in scope.sources])

        def execute(run: Run) -> tuple[list[tuple[Any, ...]], int]:
            found = []
            for _ in rows(run):
                row = tuple([compute(run) for compute in outputs])
                place = tuple([_Ordered(compute(run), down) for compute, down in order]) if order else ()
                if spread:
                    found += [(place, (one,)) for one in row[0] or ()]
                else:
                    found.append((place, row))
            if is_distinct:
                found = [*{row: (place, row) for place, row in found}.values()]
            if order:
                found.sort(key=lambda one: one[0])
            kept = [row for _, row in _part(found, offset and offset(run), limit and limit(run))]
            return kept, len(kept)

        return Query(names, execute)

    def _rows(
        self, scope: _Scope, rest: Sequence[Compute], locks: Sequence[tuple[_Source, bool]]
    ) -> Callable[[Run], Iterator[None]]:
        """Return what finds the rows of a query, and locks those that it says."""
        bind = _walk(scope.sources)

        def rows(run: Run) -> Iterator[None]:
            for _ in bind(run):
                if not _hold(run, rest):
                    continue
                for source, shared in locks:
                    definition, row = self._definitions(source.table or ""), run.frame[source.slot]
                    run.transaction.lock(definition.name, definition.key_of(row), shared=shared)
                yield

        return rows

    def _all_of(
        self, scope: _Scope, rest: Sequence[Compute], locks: Sequence[object]
    ) -> Callable[[Run], Iterator[None]] | None:
        """Return what finds all rows of one source as one group, if a query asks for that; None if it does not."""
        if len(scope.sources) != 1 or rest or locks or scope.sources[0].on or scope.sources[0].filters:
            return None
        source = scope.sources[0]

        def rows(run: Run) -> Iterator[None]:
            run.group = [(row,) for row in source.rows(run)]
            yield

        return rows

    def _optional(self, node: exp.Expression | None, scope: _Scope) -> Compute | None:
        return None if node is None else self.compute(node.expression, scope)

    def _outputs(self, scope: _Scope, nodes: Sequence[exp.Expression]) -> tuple[tuple[str, ...], list[Compute], bool]:
        """Return the names of what is selected, how each is computed, and whether it is one row for each of a list."""
        names: list[str] = []
        outputs: list[Compute] = []
        spread = False
        for node in nodes:
            inner = node.this if isinstance(node, exp.Alias) else node
            if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
                wanted = inner.table if isinstance(inner, exp.Column) else ""
                for source in scope.sources:
                    if not wanted or source.alias == wanted:
                        names += source.columns
                        outputs += [self._field(source, name) for name in source.columns]
                continue
            if isinstance(inner, (exp.Unnest, exp.Explode)):
                spread, inner = True, inner.expressions[0] if isinstance(inner, exp.Unnest) else inner.this
            compute = self.compute(inner, scope)
            names.append(node.alias_or_name or type(inner).__name__.lower())
            outputs.append(compute)
            if isinstance(node, exp.Alias):
                scope.outputs[node.alias] = compute
        return tuple(names), outputs, spread

    def _order(self, scope: _Scope, node: exp.Expression | None) -> list[tuple[Compute, bool]]:
        order = []
        for one in node.expressions if node else ():
            name = one.this.name if isinstance(one.this, exp.Column) and not one.this.table else None
            compute = scope.outputs[name] if name in scope.outputs else self.compute(one.this, scope)
            order.append((compute, bool(one.args.get("desc"))))
        return order

    def _insert(self, node: exp.Insert, parent: _Scope | None) -> Query:
        target = node.this.this if isinstance(node.this, exp.Schema) else node.this
        definition = self._definitions(target.name)
        given = [one.name for one in node.this.expressions] if isinstance(node.this, exp.Schema) else None
        names = tuple(given) if given is not None else definition.names
        values = self._values(node.expression, parent)
        own = self._source(target.alias_or_name, definition.names, lambda run: (), table=definition.name)
        excluded = self._source("excluded", definition.names, lambda run: ())
        scope = _Scope([own], parent)
        conflict = node.args.get("conflict")
        both = _Scope([own, excluded], parent)
        updates = [
            (one.this.name, self.compute(one.expression, both)) for one in (conflict.expressions if conflict else ())
        ]
        where = conflict.args.get("where") if conflict else None
        condition = self.compute(where.this, both) if where else None
        keys = (
            {
                one.this.name if isinstance(one, exp.Ordered) else one.name
                for one in conflict.args.get("conflict_keys") or ()
            }
            if conflict
            else set()
        )
        returned, outputs, _ = self._returning(node, scope)

        def execute(run: Run) -> tuple[list[tuple[Any, ...]], int]:
            found, count = [], 0
            for given_row in values(run):
                row = _new_row(run, definition, dict(zip(names, given_row, strict=False)))
                there = _conflicting(run, definition, row)
                if there is not None:
                    columns, existing = there
                    if conflict is None or (keys and keys != set(columns)):
                        run.transaction.call("raise_unique_violation", [definition.name, columns])
                    run.frame[own.slot], run.frame[excluded.slot] = existing, row
                    if not updates or (condition is not None and condition(run) is not True):
                        continue
                    row = {**existing, **{name: _stored(definition, name, compute(run)) for name, compute in updates}}
                run.write(definition.name, definition.key_of(row), row)
                count += 1
                run.frame[own.slot] = row
                found.append(tuple(compute(run) for compute in outputs))
            return found, count

        return Query(returned, execute)

    def _values(self, node: exp.Expression | None, parent: _Scope | None) -> Callable[[Run], Iterable[Sequence[Any]]]:
        if node is None:
            return lambda run: [()]
        if isinstance(node, exp.Values):
            lists = [[self.compute(one, _Scope([], parent)) for one in row.expressions] for row in node.expressions]
            return lambda run: [[compute(run) for compute in one] for one in lists]
        query = self.query(node, parent)
        return lambda run: query.run(run)[0]

    def _update(self, node: exp.Update, parent: _Scope | None) -> Query:
        definition, scope, matches = self._changed(node, node.args.get("from_"), parent)
        sets = [(one.this.name, self.compute(one.expression, scope)) for one in node.expressions]
        returned, outputs, _ = self._returning(node, scope)
        slot = scope.sources[0].slot

        def execute(run: Run) -> tuple[list[tuple[Any, ...]], int]:
            found, seen = [], set()
            for _ in matches(run):
                before = run.frame[slot]
                key = definition.key_of(before)
                if key in seen:
                    continue
                seen.add(key)
                row = {**before, **{name: _stored(definition, name, compute(run)) for name, compute in sets}}
                run.write(definition.name, key, row)
                run.frame[slot] = row
                found.append(tuple(compute(run) for compute in outputs))
                run.frame[slot] = before
            return found, len(seen)

        return Query(returned, execute)

    def _delete(self, node: exp.Delete, parent: _Scope | None) -> Query:
        definition, scope, matches = self._changed(node, node.args.get("using"), parent)
        returned, outputs, _ = self._returning(node, scope)
        slot = scope.sources[0].slot

        def execute(run: Run) -> tuple[list[tuple[Any, ...]], int]:
            found, seen = [], set()
            for _ in matches(run):
                key = definition.key_of(run.frame[slot])
                if key in seen:
                    continue
                seen.add(key)
                run.write(definition.name, key, None)
                found.append(tuple(compute(run) for compute in outputs))
            return found, len(seen)

        return Query(returned, execute)

    def _changed(
        self, node: exp.Expression, others: Any, parent: _Scope | None
    ) -> tuple[Definition, _Scope, Callable[[Run], Iterator[None]]]:
        """Return what is changed, the scope of a change, and what finds the rows to change."""
        definition = self._definitions(node.this.name)
        scope = _Scope([], parent)
        self._join(scope, node.this, None)
        found = others if isinstance(others, list) else [others.this] if others else []
        for other in found:
            self._join(scope, other, None)
            for join in other.args.get("joins") or ():
                self._join(scope, join.this, join)
        order = [*scope.sources[1:], scope.sources[0]]
        rest = self._place_conditions(scope, node.args.get("where"), order)
        bind = _walk(order)

        def matches(run: Run) -> Iterator[None]:
            for _ in bind(run):
                if _hold(run, rest):
                    yield

        return definition, scope, matches

    def _returning(self, node: exp.Expression, scope: _Scope) -> tuple[tuple[str, ...], list[Compute], bool]:
        returning = node.args.get("returning")
        return self._outputs(scope, returning.expressions if returning else ())

    # --- where rows come from

    def _source(
        self, alias: str, columns: tuple[str, ...], rows: Callable[[Run], Iterable[Any]], table: str | None = None
    ) -> _Source:
        self.slots += 1
        return _Source(self.slots - 1, alias, columns, rows, table)

    def _join(self, scope: _Scope, node: exp.Expression, join: exp.Join | None) -> None:
        source = self._from(scope, node)
        scope.sources.append(source)
        if join is None:
            return
        source.side = join.side or ""
        for name in (one.name for one in join.args.get("using") or ()):
            left = next(one for one in scope.sources[:-1] if name in one.columns)
            theirs, ours = self._field(left, name), self._field(source, name)
            scope.merged[name] = _first_of([theirs, ours])
            if source.table and source.side != "FULL" and name == self._definitions(source.table).key[0]:
                self._look_up(source, theirs)
            else:
                source.on.append(_strict(operator.eq, theirs, ours))
        if on := join.args.get("on"):
            for condition in _parts(on):
                if not self._use_key(scope, source, condition):
                    source.on.append(self.compute(condition, scope))

    def _from(self, scope: _Scope, node: exp.Expression) -> _Source:
        match node:
            case exp.Table() if isinstance(node.this, exp.Anonymous):
                name = node.this.name.lower()
                arguments = [self.compute(one, scope) for one in node.this.expressions]
                columns = self._definitions(f"{name}()").names

                def called(run: Run) -> Iterable[Row]:
                    return run.transaction.call(name, [compute(run) for compute in arguments])  # type: ignore[no-any-return]

                return self._source(node.alias_or_name or name, columns, called)
            case exp.Table() if node.name in self._cte_names:
                columns, cte = self._cte_names[node.name], node.name
                return self._source(
                    node.alias_or_name,
                    columns,
                    lambda run: [dict(zip(columns, row, strict=False)) for row in run.ctes[cte]],
                )
            case exp.Table():
                definition = self._definitions(node.name)
                return self._source(
                    node.alias_or_name, definition.names, lambda run: run.table(definition.name), definition.name
                )
            case exp.Lateral() | exp.Subquery():
                query = self.query(node.this, scope)
                return self._source(
                    node.alias,
                    query.names,
                    lambda run: [dict(zip(query.names, row, strict=False)) for row in query.run(run)[0]],
                )
            case exp.Unnest():
                return self._unnest(scope, node)
        raise NotImplementedError(f"the simulated database cannot read from {node.sql()}")

    def _unnest(self, scope: _Scope, node: exp.Unnest) -> _Source:
        lists = [self.compute(one, scope) for one in node.expressions]
        alias = node.args.get("alias")
        name = alias.this.name if alias else "unnest"
        columns = tuple(one.name for one in alias.columns) if alias and alias.columns else (name,)
        offset = node.args.get("offset")
        numbered = (offset.name,) if isinstance(offset, exp.Identifier) else ()

        def rows(run: Run) -> Iterable[Row]:
            given = [compute(run) or [] for compute in lists]
            for number in range(max(map(len, given))):
                values = [one[number] if number < len(one) else None for one in given]
                yield dict(zip((*columns, *numbered), (*values, number + 1), strict=False))

        return self._source(name, (*columns, *numbered), rows)

    def _place_conditions(
        self, scope: _Scope, where: exp.Expression | None, order: Sequence[_Source] | None = None
    ) -> list[Compute]:
        """Have each condition looked at as soon as its rows are known; those that have to wait are returned.

        `order` is that in which rows are looked at, if it is not the one in which their sources stand.
        """
        if where is None:
            return []
        slots = [source.slot for source in order or scope.sources]
        is_inner = all(not source.side for source in scope.sources)
        rest = []
        for condition in _parts(where.this):
            compute, used = self._using(condition, scope)
            last = max((slots.index(slot) for slot in used if slot in slots), default=-1)
            if not is_inner or last < 0:
                rest.append(compute)
                continue
            source = (order or scope.sources)[last]
            if not self._use_key(scope, source, condition):
                source.filters.append(compute)
        return rest

    def _use_key(self, scope: _Scope, source: _Source, condition: exp.Expression) -> bool:
        """Look only at the rows with the key that a condition asks for; False if it does not, or not yet."""
        if source.table is None or source.is_keyed or not isinstance(condition, exp.EQ):
            return False
        first = self._definitions(source.table).key[0]
        for own, other in ((condition.this, condition.expression), (condition.expression, condition.this)):
            if not isinstance(own, exp.Column) or own.name != first or isinstance(other, exp.Any):
                continue
            if self._using(own, scope)[1] != {source.slot}:
                continue
            compute, used = self._using(other, scope)
            if source.slot not in used:
                self._look_up(source, compute)
                return True
        return False

    def _look_up(self, source: _Source, key: Compute) -> None:
        table, source.is_keyed = source.table or "", True
        source.rows = lambda run: run.table(table).at(key(run))

    def _using(self, node: exp.Expression, scope: _Scope) -> tuple[Compute, set[int]]:
        before, self._used = self._used, set()
        compute = self.compute(node, scope)
        used, self._used = self._used, before
        self._used |= used
        return compute, used

    def _field(self, source: _Source, name: str) -> Compute:
        self._used.add(source.slot)
        slot = source.slot
        return lambda run: run.frame[slot][name]

    def _column(self, node: exp.Column, scope: _Scope) -> Compute:
        name, wanted = node.name, node.table
        looked: _Scope | None = scope
        while looked is not None:
            if not wanted and name in looked.merged:
                self._used |= {source.slot for source in looked.sources if name in source.columns}
                return looked.merged[name]
            for source in looked.sources:
                if name in source.columns and wanted in ("", source.alias):
                    return self._field(source, name)
            looked = looked.parent
        raise NotImplementedError(f"the simulated database finds no column {node.sql()}")

    # --- expressions

    def compute(self, node: exp.Expression, scope: _Scope) -> Compute:
        kind = type(node)
        if kind in _AGGREGATES:
            return self._aggregate(node, scope)
        if kind in _COMPARE:
            if isinstance(node.expression, exp.Any):
                return self._any(node, scope)
            return _strict(_COMPARE[kind], self.compute(node.this, scope), self.compute(node.expression, scope))
        handler = getattr(self, f"_{kind.__name__.lower()}", None)
        if handler is None:
            raise NotImplementedError(f"the simulated database knows no {kind.__name__}: {node.sql()}")
        return handler(node, scope)  # type: ignore[no-any-return]

    def _aggregate(self, node: exp.Expression, scope: _Scope) -> Compute:
        self._has_aggregate = True
        combine, slots = _AGGREGATES[type(node)], [source.slot for source in scope.sources]
        is_star = isinstance(node.this, exp.Star)
        compute = (lambda run: True) if is_star else self.compute(node.this, scope)
        name = node.this.name if isinstance(node.this, exp.Column) and len(slots) == 1 else None
        if name is not None and name in scope.sources[0].columns:
            return lambda run: combine([value for (row,) in run.group if (value := row[name]) is not None])

        def aggregate(run: Run) -> Any:
            values, group = [], run.group
            for member in group:
                _restore(run, slots, member)
                if (value := compute(run)) is not None:
                    values.append(value)
            return combine(values)

        return aggregate

    def _window(self, node: exp.Expression, scope: _Scope) -> Compute:
        if not isinstance(node.this, exp.Sum) or node.args.get("partition_by"):
            raise NotImplementedError(f"the simulated database knows no such window: {node.sql()}")
        self.slots += 1
        slot = self.slots - 1
        order = self._order(scope, node.args["order"])
        self._windows.append(_Window(slot, self.compute(node.this.this, scope), order))
        return lambda run: run.frame[slot]

    def _div(self, node: exp.Expression, scope: _Scope) -> Compute:
        def divide(left: Any, right: Any) -> Any:
            is_whole = isinstance(left, int) and isinstance(right, int)
            return int(left / right) if is_whole else left / right

        return _strict(divide, self.compute(node.this, scope), self.compute(node.expression, scope))

    def _any(self, node: exp.Expression, scope: _Scope) -> Compute:
        left, right = self.compute(node.this, scope), node.expression.this
        inner = right.this if isinstance(right, exp.Paren) else right
        listed = self.compute(inner, scope)
        return lambda run: None if (value := left(run)) is None else value in (listed(run) or ())

    def _and(self, node: exp.Expression, scope: _Scope) -> Compute:
        left, right = self.compute(node.this, scope), self.compute(node.expression, scope)

        def both(run: Run) -> bool | None:
            first = left(run)
            if first is False:
                return False
            second = right(run)
            return second if first is True or second is False else None

        return both

    def _or(self, node: exp.Expression, scope: _Scope) -> Compute:
        left, right = self.compute(node.this, scope), self.compute(node.expression, scope)

        def either(run: Run) -> bool | None:
            first = left(run)
            if first is True:
                return True
            second = right(run)
            return second if first is False or second is True else None

        return either

    def _not(self, node: exp.Expression, scope: _Scope) -> Compute:
        inner = self.compute(node.this, scope)
        return lambda run: None if (value := inner(run)) is None else not value

    def _is(self, node: exp.Expression, scope: _Scope) -> Compute:
        left, right = self.compute(node.this, scope), self.compute(node.expression, scope)
        if node.args.get("negate"):
            return lambda run: left(run) is not right(run)
        return lambda run: left(run) is right(run)

    def _nullsafeeq(self, node: exp.Expression, scope: _Scope) -> Compute:
        left, right = self.compute(node.this, scope), self.compute(node.expression, scope)
        return lambda run: left(run) == right(run)

    def _nullsafeneq(self, node: exp.Expression, scope: _Scope) -> Compute:
        left, right = self.compute(node.this, scope), self.compute(node.expression, scope)
        return lambda run: left(run) != right(run)

    def _paren(self, node: exp.Expression, scope: _Scope) -> Compute:
        return self.compute(node.this, scope)

    def _neg(self, node: exp.Expression, scope: _Scope) -> Compute:
        inner = self.compute(node.this, scope)
        return lambda run: None if (value := inner(run)) is None else -value

    def _null(self, node: exp.Expression, scope: _Scope) -> Compute:
        return lambda run: None

    def _boolean(self, node: exp.Expression, scope: _Scope) -> Compute:
        value = bool(node.this)
        return lambda run: value

    def _literal(self, node: exp.Expression, scope: _Scope) -> Compute:
        text = node.this
        value = text if node.is_string else float(text) if "." in text else int(text)
        return lambda run: value

    def _placeholder(self, node: exp.Expression, scope: _Scope) -> Compute:
        name = node.this
        return lambda run: run.values[name]

    def _tuple(self, node: exp.Expression, scope: _Scope) -> Compute:
        parts = [self.compute(one, scope) for one in node.expressions]
        return lambda run: tuple(part(run) for part in parts)

    def _array(self, node: exp.Expression, scope: _Scope) -> Compute:
        parts = [self.compute(one, scope) for one in node.expressions]
        return lambda run: [part(run) for part in parts]

    def _arraycontainsall(self, node: exp.Expression, scope: _Scope) -> Compute:
        left, right = self.compute(node.this, scope), self.compute(node.expression, scope)
        return lambda run: set(left(run)) >= set(right(run))

    def _coalesce(self, node: exp.Expression, scope: _Scope) -> Compute:
        return _first_of([self.compute(one, scope) for one in (node.this, *node.expressions)])

    def _case(self, node: exp.Expression, scope: _Scope) -> Compute:
        branches = [(self.compute(one.this, scope), self.compute(one.args["true"], scope)) for one in node.args["ifs"]]
        otherwise = node.args.get("default")
        last = self.compute(otherwise, scope) if otherwise is not None else (lambda run: None)

        def choose(run: Run) -> Any:
            for when, then in branches:
                if when(run) is True:
                    return then(run)
            return last(run)

        return choose

    def _exists(self, node: exp.Expression, scope: _Scope) -> Compute:
        return self._once(node.this, scope, bool)

    def _subquery(self, node: exp.Expression, scope: _Scope) -> Compute:
        return self._once(node.this, scope, lambda rows: rows[0][0] if rows else None)

    def _once(self, node: exp.Expression, scope: _Scope, read: Callable[[list[Any]], Any]) -> Compute:
        """Compute a query inside another one; once only, where it does not depend on the rows of that."""
        before, has_aggregate = self._used, self._has_aggregate
        first, self._used = self.slots, set()
        query = self.query(node, scope)
        outer = {slot for slot in self._used if slot < first}
        self._used, self._has_aggregate = before | self._used, has_aggregate
        if outer:
            return lambda run: read(query.run(run)[0])

        def compute(run: Run) -> Any:
            if query not in run.known:
                run.known[query] = read(query.run(run)[0])
            return run.known[query]

        return compute

    def _in(self, node: exp.Expression, scope: _Scope) -> Compute:
        left = self.compute(node.this, scope)
        if inner := node.args.get("query"):
            found = self._once(inner, scope, lambda rows: {row[0] for row in rows})
            return lambda run: left(run) in found(run)
        listed = [self.compute(one, scope) for one in node.expressions]
        return lambda run: None if (value := left(run)) is None else value in [one(run) for one in listed]

    def _cast(self, node: exp.Expression, scope: _Scope) -> Compute:
        inner, to = self.compute(node.this, scope), node.args["to"].this
        convert = _CASTS.get(to)
        if convert is None:
            return inner
        return lambda run: None if (value := inner(run)) is None else convert(value)

    def _interval(self, node: exp.Expression, scope: _Scope) -> Compute:
        unit = node.args.get("unit")
        seconds = _seconds(f"{node.this.this} {unit.name if unit else ''}")
        return lambda run: seconds

    def _extract(self, node: exp.Expression, scope: _Scope) -> Compute:
        return self.compute(node.expression, scope)  # moments are seconds

    def _currenttimestamp(self, node: exp.Expression, scope: _Scope) -> Compute:
        return lambda run: run.transaction.now

    def _trim(self, node: exp.Expression, scope: _Scope) -> Compute:
        return _strict_one(str.strip, self.compute(node.this, scope))

    def _strposition(self, node: exp.Expression, scope: _Scope) -> Compute:
        text, wanted = self.compute(node.this, scope), self.compute(node.args["substr"], scope)
        return _strict(lambda left, right: left.find(right) + 1, text, wanted)

    def _startswith(self, node: exp.Expression, scope: _Scope) -> Compute:
        return _strict(str.startswith, self.compute(node.this, scope), self.compute(node.expression, scope))

    def _stringtoarray(self, node: exp.Expression, scope: _Scope) -> Compute:
        return _strict(str.split, self.compute(node.this, scope), self.compute(node.expression, scope))

    def _matchagainst(self, node: exp.Expression, scope: _Scope) -> Compute:
        words, wanted = self.compute(node.expressions[0], scope), self.compute(node.this, scope)

        def matches(found: Any, query: str) -> bool:
            return {one.strip("' ") for one in query.split(" & ")} <= set(found)

        return _strict(matches, words, wanted)

    def _jsonextractscalar(self, node: exp.Expression, scope: _Scope) -> Compute:
        *_, key = node.expression.expressions
        name, inner = key.this, self.compute(node.this, scope)

        def extract(text: str) -> str | None:
            value = json.loads(text).get(name)
            return value if value is None or isinstance(value, str) else json.dumps(value)

        return _strict_one(extract, inner)

    def _dpipe(self, node: exp.Expression, scope: _Scope) -> Compute:
        return _strict(operator.add, self.compute(node.this, scope), self.compute(node.expression, scope))

    def _currentschema(self, node: exp.Expression, scope: _Scope) -> Compute:
        return lambda run: "amplifier"

    def _anonymous(self, node: exp.Expression, scope: _Scope) -> Compute:
        name, arguments = node.name.lower(), [self.compute(one, scope) for one in node.expressions]
        if name == "array_to_tsvector":
            return arguments[0]
        if name == "octet_length":
            return _strict_one(lambda text: len(text.encode()), arguments[0])
        return lambda run: run.transaction.call(name, [compute(run) for compute in arguments])


def _parts(condition: exp.Expression) -> list[exp.Expression]:
    """Return the conditions of which every one has to hold."""
    return [*condition.flatten()] if isinstance(condition, exp.And) else [condition]


def _part(found: list[Any], offset: int | None, limit: int | None) -> list[Any]:
    first = offset or 0
    return found[first : None if limit is None else first + limit]


def _grouped(
    rows: Callable[[Run], Iterator[None]], groups: Sequence[Compute] | None, slots: Sequence[int]
) -> Callable[[Run], Iterator[None]]:
    """Return what finds the groups of rows that belong together; all of them are one group if nothing else is said."""

    def grouped(run: Run) -> Iterator[None]:
        found: dict[Any, list[tuple[Any, ...]]] = {} if groups else {(): []}
        for _ in rows(run):
            group = tuple(compute(run) for compute in groups or ())
            found.setdefault(group, []).append(tuple([run.frame[slot] for slot in slots]))
        for members in found.values():
            if members:
                _restore(run, slots, members[0])
            run.group = members
            yield

    return grouped


def _windowed(
    rows: Callable[[Run], Iterator[None]], windows: Sequence[_Window], slots: Sequence[int]
) -> Callable[[Run], Iterator[None]]:
    """Return what finds rows with the sums that they have in their windows."""

    def windowed(run: Run) -> Iterator[None]:
        found = [tuple([run.frame[slot] for slot in slots]) for _ in rows(run)]
        sums: list[dict[int, Any]] = [{} for _ in found]
        for window in windows:
            places = []
            for number, one in enumerate(found):
                _restore(run, slots, one)
                place = tuple(_Ordered(compute(run), down) for compute, down in window.order)
                places.append((place, number, window.compute(run)))
            total = 0
            for _, number, value in sorted(places, key=lambda one: one[0]):
                total += value or 0
                sums[number][window.slot] = total
        for one, totals in zip(found, sums, strict=True):
            _restore(run, slots, one)
            for slot, value in totals.items():
                run.frame[slot] = value
            yield

    return windowed


def _restore(run: Run, slots: Sequence[int], rows: Sequence[Any]) -> None:
    for slot, row in zip(slots, rows, strict=True):
        run.frame[slot] = row


def _strict(combine: Callable[[Any, Any], Any], left: Compute, right: Compute) -> Compute:
    """Combine two values; nothing is known of it when one of them is not known."""

    def compute(run: Run) -> Any:
        first = left(run)
        if first is None:
            return None
        second = right(run)
        return None if second is None else combine(first, second)

    return compute


def _strict_one(convert: Callable[[Any], Any], inner: Compute) -> Compute:
    return lambda run: None if (value := inner(run)) is None else convert(value)


def _first_of(parts: Sequence[Compute]) -> Compute:
    def compute(run: Run) -> Any:
        for part in parts:
            if (value := part(run)) is not None:
                return value
        return None

    return compute


class _Ordered:
    """A value as rows are sorted by it; an unknown one counts as the greatest."""

    __slots__ = ("down", "value")

    def __init__(self, value: Any, down: bool) -> None:
        self.value, self.down = value, down

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Ordered) and self.value == other.value

    def __lt__(self, other: _Ordered) -> bool:
        first, second = (other.value, self.value) if self.down else (self.value, other.value)
        if first is None:
            return False
        return second is None or bool(first < second)


def _hold(run: Run, conditions: Sequence[Compute]) -> bool:
    for condition in conditions:  # noqa: SIM110 - the hottest line of a simulation
        if condition(run) is not True:
            return False
    return True


def _walk(sources: Sequence[_Source]) -> Callable[[Run], Iterator[None]]:
    """Return what puts every combination of rows into the frame, one after the other."""
    if len(sources) > 1 and sources[1].side == "FULL":
        return _full_walk(sources)

    def step(run: Run, number: int) -> Iterator[None]:
        if number == len(sources):
            yield
            return
        source, is_matched, is_last = sources[number], False, number == len(sources) - 1
        for row in source.rows(run):
            run.frame[source.slot] = row
            if source.on and not _hold(run, source.on):
                continue
            is_matched = True
            if source.filters and not _hold(run, source.filters):
                continue
            if is_last:
                yield
            else:
                yield from step(run, number + 1)
        if source.side == "LEFT" and not is_matched:
            run.frame[source.slot] = source.nothing
            yield from step(run, number + 1)

    return lambda run: step(run, 0)


def _full_walk(sources: Sequence[_Source]) -> Callable[[Run], Iterator[None]]:
    left, right, rest = sources[0], sources[1], _walk(sources[2:])

    def walk(run: Run) -> Iterator[None]:
        ours, theirs = [*left.rows(run)], [*right.rows(run)]
        matched: set[int] = set()
        for own in ours:
            is_matched = False
            for number, other in enumerate(theirs):
                run.frame[left.slot], run.frame[right.slot] = own, other
                if _hold(run, right.on):
                    is_matched = True
                    matched.add(number)
                    yield from rest(run)
            if not is_matched:
                run.frame[left.slot], run.frame[right.slot] = own, right.nothing
                yield from rest(run)
        for number, other in enumerate(theirs):
            if number not in matched:
                run.frame[left.slot], run.frame[right.slot] = left.nothing, other
                yield from rest(run)

    return walk


def _new_row(run: Run, definition: Definition, given: Row) -> Row:
    row: Row = {}
    for column in definition.columns:
        if column.name in given:
            row[column.name] = _stored(definition, column.name, given[column.name])
        elif column.is_identity:
            row[column.name] = run.transaction.next_number(definition.name)
        else:
            default = column.default(run) if column.default else None
            row[column.name] = _stored(definition, column.name, default)
    return row


@cache
def _json_columns(definition: Definition) -> frozenset[str]:
    return frozenset(column.name for column in definition.columns if column.type in ("json", "jsonb"))


def _stored(definition: Definition, name: str, value: Any) -> Any:
    if value is not None and name in _json_columns(definition):
        return Json(value)
    return value


def _conflicting(run: Run, definition: Definition, row: Row) -> tuple[tuple[str, ...], Row] | None:
    """Return the row that has the same key, or other values that only one may have."""
    key, pending = definition.key_of(row), run.pending.get(definition.name, {})
    run.transaction.lock(definition.name, key)
    existing = pending[key] if key in pending else run.table(definition.name).find(key)
    if existing is not None:
        return definition.key, existing
    for unique in definition.uniques:
        values = tuple(row[name] for name in unique.columns)
        if None in values or (unique.condition is not None and not unique.condition(row)):
            continue
        run.transaction.lock(f"{definition.name} {unique.columns}", values)
        table, first = run.table(definition.name), definition.key[0]
        stored = table.at(row[first]) if first in unique.columns else table
        name, value = unique.columns[-1], values[-1]
        found = [one for one in stored if one[name] == value and definition.key_of(one) not in pending]
        for one in (*found, *filter(None, pending.values())):
            is_same = tuple([one[name] for name in unique.columns]) == values
            if is_same and (unique.condition is None or unique.condition(one)):
                return unique.columns, one
    return None


def _seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * _UNITS_S[unit.lower()]


_CASTS: dict[Any, Callable[[Any], Any]] = {
    exp.DataType.Type.TEXT: lambda value: str.__str__(value) if isinstance(value, str) else str(value),
    exp.DataType.Type.JSON: Json,
    exp.DataType.Type.JSONB: Json,
    exp.DataType.Type.DOUBLE: float,
    exp.DataType.Type.BIGINT: int,
    exp.DataType.Type.INTERVAL: lambda value: value if isinstance(value, float) else _seconds(value),
}


def row_condition(node: exp.Expression, columns: tuple[str, ...]) -> Callable[[Row], bool]:
    """Return a condition on one row of a table, as an index has it."""
    compiler = _Compiler(_no_table)
    source = _Source(0, "", columns, lambda run: ())
    compute = compiler.compute(node, _Scope([source], None))
    return lambda row: compute(Run(_NOTHING, {}, [row])) is True


def _no_table(name: str) -> Definition:
    raise NotImplementedError(f"the condition of an index reads no table: {name}")


_NOTHING: Any = None
