"""Whatever a plan holds, a session answers in words of its own: no error from the inside, and no hang."""

import logging
import re
import sys
from collections.abc import Iterator
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amplifier_core import AmplifierSession
from amplifier_core.exceptions import AmplifierError

KNOWN = {
    "orchestrator": "loop-known",
    "context": "context-known",
    "provider": "provider-known",
    "tool": "tool-known",
    "hook": "hooks-known",
}
OUR_WORDS = re.compile(
    r"Module '.*' (not found via entry points or filesystem|failed validation: )"
    r"|no folder for "
    r"|\S+ must be (a |an )"
    r"|(Named provider mount|Provider mount) did not install",
    re.DOTALL,
)
OUR_REFUSALS = ("Cannot initialize without ", "No orchestrator module ", "No context manager ", "No providers mounted")


class Hostile:
    """An object that can be neither printed nor compared nor copied."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = object.__hash__

    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("no copy")


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


CYCLE: dict[str, Any] = {}
CYCLE["again"] = [CYCLE]

VALUES: dict[str, Any] = {
    "None": None,
    "True": True,
    "False": False,
    "zero": 0,
    "number": 7,
    "huge number": 10**5_000,
    "float": 0.5,
    "NaN": float("nan"),
    "decimal": Decimal(1),
    "empty text": "",
    "text": "no-such-module",
    "space": "  ",
    "dots": "..",
    "path": "../../etc/passwd",
    "absolute path": "/etc",
    "backslash": "a\\b",
    "NUL": "tool\0x",
    "newline": "tool\nx",
    "quotes and formats": "tool'x\"{}%s",
    "unicode": "wérkzeug-🔧-工具",
    "right to left": "\u202etool",
    "lone surrogate": "tool-\ud800",
    "dotted": "tool.x.y",
    "very long": "x" * 100_000,
    "file URL": "file:///nowhere/at/all",
    "bytes": b"tool\xff",
    "empty list": [],
    "list": ["a", 1, None],
    "tuple": ("a",),
    "set": {"a"},
    "empty dict": {},
    "dict": {"module": "no-such-module"},
    "odd keys": {1: 2, None: 3, ("a",): 4},
    "mapping": MappingProxyType({"module": "no-such-module"}),
    "cycle": CYCLE,
    "deep nesting": nested(10_000),
    "object": object(),
    "hostile object": Hostile(),
    "class": dict,
    "function": len,
    "error": ValueError("x"),
}


def entry(module_type: str, **more: Any) -> dict[str, Any]:
    return {"module": KNOWN[module_type], "source": "anything", "config": {"key": {"inner": [1]}}, **more}


PLAN: dict[str, Any] = {
    "session": {
        "orchestrator": entry("orchestrator"),
        "context": KNOWN["context"],
        "context_source": "anything",
        "injection_budget_per_turn": 10,
        "injection_size_limit": 10,
        "metadata": {"key": 1},
        "raw": True,
    },
    "context": {"config": {"key": 1}},
    "providers": [entry("provider"), entry("provider", instance_id="second")],
    "tools": [entry("tool")],
    "hooks": [entry("hook")],
    "agents": {"key": {"tools": []}},
}


def positions(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the way to every value of a plan, the plan itself included."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in items:
        yield from positions(child, (*path, key))


def substituted(plan: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a plan with another value in one place."""
    if not path:
        return value
    plan = dict(plan) if isinstance(plan, dict) else list(plan)
    plan[path[0]] = substituted(plan[path[0]], path[1:], value)
    return plan


async def complaint_about(plan: Any, resolver: Any = None) -> str:
    """Run a session on `plan` from construction to cleanup; return what is wrong with the way it failed, if it did."""
    before = list(sys.path)
    session: AmplifierSession | None = None
    try:
        session = AmplifierSession(plan, parent_id="parent")
        session.coordinator.mount_points["module-source-resolver"] = resolver
        await session.initialize()
        await session.execute("hello")
    except AmplifierError:
        pass
    except RuntimeError as exc:
        if type(exc) is not RuntimeError or not str(exc).startswith(OUR_REFUSALS):
            return f"{type(exc).__name__}: {exc}"
        if exc.__cause__ is not None and not isinstance(exc.__cause__, AmplifierError):
            return f"{exc} because of {type(exc.__cause__).__name__}"
    except Exception as exc:  # noqa: BLE001 - any other error is what the tests look for
        return f"{type(exc).__name__}: {exc}"
    if session is not None:
        await session.cleanup()
        strange = [failure for failure in session.status.load_failures if not OUR_WORDS.match(failure["error"])]
        if strange:
            return f"load failure: {strange[0]}"
    return "" if sys.path == before else "sys.path has changed"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of failures need not be formatted; that they can be is for the tests of each failure."""
    logger = logging.getLogger("amplifier_core")
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def resolver(modules: Any) -> Any:
    """A resolver that knows one working module of each type."""
    for module_type, module_id in KNOWN.items():
        modules.write(module_type, module_id=module_id)
    return modules.resolver


async def test_the_plan_that_is_varied_below_works(resolver: Any) -> None:
    session = AmplifierSession(PLAN)
    session.coordinator.mount_points["module-source-resolver"] = resolver

    async with session:
        assert await session.execute("hello") == "answer to hello"

    assert session.status.load_failures == []


@pytest.mark.parametrize("section", [None, *PLAN])
async def test_a_wrong_value_anywhere_in_a_plan_is_told_in_our_words(resolver: Any, section: str | None) -> None:
    paths = [()] if section is None else list(positions(PLAN[section], (section,)))
    complaints = {}
    for path in paths:
        for name, value in VALUES.items():
            if complaint := await complaint_about(substituted(PLAN, path, value), resolver):
                complaints[path, name] = complaint

    assert complaints == {}


async def test_a_value_missing_anywhere_in_a_plan_is_told_in_our_words(resolver: Any) -> None:
    for *way, last in filter(None, positions(PLAN)):
        parent: Any = PLAN
        for key in way:
            parent = parent[key]
        if isinstance(parent, dict):
            rest: Any = {key: value for key, value in parent.items() if key != last}
        else:
            rest = [value for index, value in enumerate(parent) if index != last]

        assert await complaint_about(substituted(PLAN, tuple(way), rest), resolver) == "", (*way, last)


async def test_plans_that_are_none_are_refused(resolver: Any) -> None:
    for plan in (None, {}, [], "", "plan", 7, [PLAN], {"session"}, object(), Hostile()):
        with pytest.raises(ValueError, match=r"^Configuration (is required|must be a mapping, got \w+)$"):
            AmplifierSession(plan)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", ["orchestrator", "providers", "tools", "hooks"])
async def test_an_odd_module_id_without_a_resolver_is_not_found(modules: Any, place: str) -> None:
    modules.write("orchestrator", module_id="loop-nobody")
    modules.write("context", module_id="context-nobody")
    sources = {
        f"{kind}_source": str(modules.resolver.folders[f"{word}-nobody"])
        for kind, word in (("orchestrator", "loop"), ("context", "context"))
    }
    for name, module_id in VALUES.items():
        if isinstance(module_id, str):
            session: dict[str, Any] = {"orchestrator": "loop-nobody", "context": "context-nobody"}
            plan: dict[str, Any] = {"session": session}
            if place == "orchestrator":
                session["orchestrator"] = {"module": module_id}
            else:
                session |= sources
                plan[place] = [{"module": module_id}]

            assert await complaint_about(plan) == "", name


async def test_keys_that_are_no_strings_are_nobodys_business(resolver: Any) -> None:
    odd = {1: 2, None: 3, ("a", "b"): 4, 0.5: Hostile()}
    plan = {**PLAN, **odd, "session": {**PLAN["session"], **odd}, "tools": [{**PLAN["tools"][0], **odd}]}

    assert await complaint_about(plan, resolver) == ""


async def test_a_plan_that_contains_itself_runs(resolver: Any) -> None:
    plan = {**PLAN, "session": {**PLAN["session"]}, "tools": [{**PLAN["tools"][0]}]}
    plan["itself"] = plan["session"]["metadata"] = plan["tools"][0]["config"] = plan

    session = AmplifierSession(plan, parent_id="parent")
    session.coordinator.mount_points["module-source-resolver"] = resolver
    async with session:
        assert await session.execute("hello") == "answer to hello"

    assert session.status.load_failures == []


async def test_hundreds_of_modules_that_are_not_there_are_as_many_failures(resolver: Any) -> None:
    plan = {**PLAN, "tools": [{"module": f"tool-nobody-{number}"} for number in range(500)]}
    session = AmplifierSession(plan)
    session.coordinator.mount_points["module-source-resolver"] = resolver

    async with session:
        assert await session.execute("hello") == "answer to hello"

    assert len(session.status.load_failures) == 500


async def test_ten_thousand_entries_of_the_wrong_shape_are_refused_at_the_first(resolver: Any) -> None:
    session = AmplifierSession({**PLAN, "tools": [{"module": "tool-known"}] * 5_000 + ["tool-known"] * 5_000})

    with pytest.raises(ValueError, match=r"^tools\[5000\] must be a dict, got str$"):
        await session.initialize()


async def test_thousands_of_entries_for_one_module_mount_it_as_often(resolver: Any) -> None:
    instances = [entry("provider", instance_id=f"p{number}") for number in range(1_000)]
    session = AmplifierSession({**PLAN, "providers": instances, "hooks": [entry("hook")] * 1_000})
    session.coordinator.mount_points["module-source-resolver"] = resolver

    async with session:
        assert list(session.coordinator.get("providers")) == [one["instance_id"] for one in instances]
        assert len(session.coordinator.hooks.list_handlers("tool:pre")["tool:pre"]) == 1_000

    assert session.status.load_failures == []


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(sorted(KNOWN.values()))
keys = st.sampled_from(["module", "source", "config", "instance_id", "orchestrator", "context"]) | st.text()
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4))
entries = st.lists(
    st.fixed_dictionaries(
        {"module": st.sampled_from(sorted(KNOWN.values())) | values},
        optional={"source": values, "config": values, "instance_id": st.text() | values},
    )
    | values,
    max_size=4,
)
plans = st.fixed_dictionaries(
    {
        "session": st.fixed_dictionaries(
            {"orchestrator": st.just(KNOWN["orchestrator"]) | values, "context": st.just(KNOWN["context"]) | values},
            optional={name: values for name in ("raw", "metadata", "injection_size_limit", "orchestrator_source")},
        )
        | values
    },
    optional={
        **{name: entries | values for name in ("providers", "tools", "hooks")},
        **{name: values for name in ("orchestrator", "context", "agents", "other")},
    },
)


@given(plan=plans | values)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_no_plan_brings_an_error_out_of_the_inside(resolver: Any, plan: Any) -> None:
    assert await complaint_about(plan, resolver) == ""
