"""What the scheduler answers to each question."""

from typing import Any

import pytest
from amplifier_module_hooks_scheduler_heuristic import HeuristicScheduler, mount
from amplifier_module_hooks_scheduler_heuristic.scheduler import (
    FirstAvailableStrategy,
    RandomStrategy,
    RoundRobinStrategy,
)

from amplifier_core.testing import MockCoordinator

STRATEGIES = [FirstAvailableStrategy(), RoundRobinStrategy(), RandomStrategy(), RandomStrategy(seed=7)]


async def mounted(**config: Any) -> MockCoordinator:
    coordinator = MockCoordinator()
    await mount(coordinator, config)
    return coordinator


async def selected(coordinator: MockCoordinator, tool_name: Any, available: Any) -> Any:
    payload = {"tool_name": tool_name, "tool_input": {"q": 1}, "available_tools": available, "session_id": "s1"}
    return await coordinator.hooks.emit("tool:selecting", payload)


async def test_round_robin_over_three_tools_chooses_one_after_the_other() -> None:
    coordinator = await mounted(strategy="round-robin", override_enabled=True)

    answers = [await selected(coordinator, "b", ["a", "b", "c"]) for _ in range(4)]

    assert [answer.data["tool_name"] for answer in answers] == ["a", "b", "c", "a"]
    assert {answer.data["session_id"] for answer in answers} == {"s1"}


async def test_the_reason_names_the_strategy() -> None:
    answer = await HeuristicScheduler({"override_enabled": True}).handle_tool_selecting(
        "tool:selecting", {"tool_name": "b", "available_tools": ["a", "b"], "tool_call_id": "c1"}
    )

    assert answer.action == "modify"
    assert "first" in answer.reason
    assert answer.data == {"tool_name": "a", "tool": "a", "available_tools": ["a", "b"], "tool_call_id": "c1"}


async def test_without_override_no_turn_is_used_up() -> None:
    scheduler = HeuristicScheduler({"strategy": "round-robin"})
    data = {"tool_name": "b", "available_tools": ["a", "b"]}

    answers = [await scheduler.handle_tool_selecting("tool:selecting", data) for _ in range(3)]
    decision = await scheduler.handle_tool_resolution("decision:tool_resolution", data)

    assert {(answer.action, answer.data is None) for answer in answers} == {("continue", True)}
    assert decision.data["selected_tool"] == "a"


@pytest.mark.parametrize("override", [True, False])
async def test_a_tool_that_is_not_available_is_denied(override: bool) -> None:
    answer = await selected(await mounted(override_enabled=override), "x", ["a", "b"])

    assert (answer.action, answer.reason) == ("deny", "Tool x not in available tools")


@pytest.mark.parametrize("available", [None, [], "ab", 7])
async def test_where_nothing_is_available_the_model_decides(available: Any) -> None:
    answer = await selected(await mounted(override_enabled=True), "x", available)

    assert (answer.action, answer.data["tool_name"]) == ("continue", "x")


@pytest.mark.parametrize("tool_name", [None, "", 7])
async def test_a_call_without_a_tool_is_not_its_business(tool_name: Any) -> None:
    answer = await selected(await mounted(override_enabled=True), tool_name, ["a"])

    assert (answer.action, answer.data["tool_name"]) == ("continue", tool_name)


async def test_it_chooses_among_the_configured_tools_only() -> None:
    coordinator = await mounted(strategy="round-robin", override_enabled=True, tools=["c", "b", "z"])

    answers = [await selected(coordinator, "a", ["a", "b", "c"]) for _ in range(3)]
    nothing = await selected(coordinator, "a", ["a"])

    assert [answer.data["tool_name"] for answer in answers] == ["b", "c", "b"]
    assert nothing.data["tool_name"] == "a"


async def test_another_schedulers_choice_is_what_it_judges() -> None:
    scheduler = HeuristicScheduler({"override_enabled": True})
    data = {"tool_name": "b", "tool": "x", "available_tools": ["a", "b"]}

    assert (await scheduler.handle_tool_selecting("tool:selecting", data)).action == "deny"


async def test_decisions_are_scored_and_explained() -> None:
    coordinator = await mounted(strategy="first")

    tools = await coordinator.hooks.emit_and_collect("decision:tool_resolution", {"available_tools": ["a", "b"]})
    agents = await coordinator.hooks.emit_and_collect(
        "decision:agent_resolution", {"available_agents": ["x", "y"], "task": "find it"}
    )

    assert [(answer["selected_tool"], answer["score"], answer["metadata"]) for answer in tools] == [
        ("a", 0.5, {"strategy": "first"})
    ]
    assert [(answer["selected_agent"], answer["score"], answer["metadata"]) for answer in agents] == [
        ("x", 0.5, {"strategy": "first"})
    ]
    assert tools[0]["rationale"]


@pytest.mark.parametrize(
    ("event", "data"),
    [
        ("decision:tool_resolution", {"available_tools": []}),
        ("decision:tool_resolution", {}),
        ("decision:agent_resolution", {"available_agents": None}),
        ("decision:context_resolution", {"context_size": 7}),
        ("decision:context_resolution", {"context_size": 7, "max_size": 0}),
        ("decision:context_resolution", {"context_size": True, "max_size": "7"}),
    ],
)
async def test_where_there_is_nothing_to_decide_there_is_no_answer(event: str, data: dict[str, Any]) -> None:
    assert await (await mounted()).hooks.emit_and_collect(event, data) == []


@pytest.mark.parametrize(
    ("size", "should_compact", "strategy"), [(920, False, None), (921, True, "progressive"), (0, False, None)]
)
async def test_a_context_is_compacted_above_92_per_cent(size: int, should_compact: bool, strategy: str | None) -> None:
    data = {"context_size": size, "max_size": 1000}

    (answer,) = await (await mounted()).hooks.emit_and_collect("decision:context_resolution", data)

    assert (answer["should_compact"], answer["compaction_strategy"]) == (should_compact, strategy)
    assert answer.keys() == {"should_compact", "compaction_strategy", "score", "rationale", "metadata"}


async def test_a_strategy_that_fails_leaves_the_choice_to_the_model(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def select_tool(self, available_tools: Any, context: Any = None) -> str:
            raise RuntimeError("no idea")

        def select_agent(self, available_agents: Any, task: str = "", context: Any = None) -> str:
            raise RuntimeError("no idea")

    scheduler = HeuristicScheduler({"override_enabled": True})
    scheduler.strategy = Broken()
    data = {"tool_name": "b", "available_tools": ["a", "b"], "available_agents": ["x"]}

    answers = [
        await scheduler.handle_tool_selecting("tool:selecting", data),
        await scheduler.handle_tool_resolution("decision:tool_resolution", data),
        await scheduler.handle_agent_resolution("decision:agent_resolution", data),
    ]

    assert {(answer.action, answer.data is None) for answer in answers} == {("continue", True)}
    assert caplog.text.count("no idea") >= 3


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)
def test_a_strategy_chooses_nothing_from_nothing_and_one_from_one(strategy: Any) -> None:
    assert (strategy.select_tool([], {}), strategy.select_agent([], "task", {})) == ("", "")
    assert (strategy.select_tool(["a"], {}), strategy.select_agent(["x"], "task", {})) == ("a", "x")


def test_round_robin_counts_tools_and_agents_separately_and_fits_lists_that_change() -> None:
    strategy = RoundRobinStrategy()

    tools = [strategy.select_tool(list("abc"), None) for _ in range(2)]
    agents = [strategy.select_agent(list("xy"), "", None) for _ in range(3)]

    assert (tools, agents) == (["a", "b"], ["x", "y", "x"])
    assert strategy.select_tool(["a", "b"], None) == "a"


def test_seeded_choices_repeat() -> None:
    first, second = RandomStrategy(seed=3), RandomStrategy(seed=3)

    assert [first.select_tool(list("abcd")) for _ in range(20)] == [second.select_tool(list("abcd")) for _ in range(20)]


async def test_the_handlers_have_the_names_that_others_rely_on() -> None:
    coordinator = await mounted()

    assert coordinator.hooks.list_handlers() == {
        "tool:selecting": ["heuristic:tool_selecting"],
        "decision:tool_resolution": ["heuristic:tool_resolution"],
        "decision:agent_resolution": ["heuristic:agent_resolution"],
        "decision:context_resolution": ["heuristic:context_resolution"],
    }


async def test_it_has_priority_50() -> None:
    coordinator = await mounted()
    for priority in (51, 49):
        coordinator.hooks.register("tool:selecting", lambda *args: None, priority=priority, name=str(priority))

    assert coordinator.hooks.list_handlers("tool:selecting")["tool:selecting"] == [
        "49", "heuristic:tool_selecting", "51",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", "x"),
        ("seed", 1.5),
        ("override_enabled", "perhaps"),
        ("tools", "a"),
        ("tools", [7]),
        ("enabled_events", 7),
    ],
)
async def test_a_value_that_does_not_fit_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match="hooks-scheduler-heuristic") as error:
        await mount(MockCoordinator(), {key: value})

    assert all(part in str(error.value) for part in (repr(key), repr(value), "allowed: "))


async def test_an_unknown_strategy_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    await mounted(strategy="clever")

    assert [record.levelname for record in caplog.records if "clever" in record.getMessage()] == ["WARNING"]
