"""A mount plan read as values: two forms, one view; nothing is changed in place."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_core.mount_plan import MountPlan, PlanEntry

BY_ENTRY: dict[str, Any] = {
    "session": {
        "orchestrator": {"module": "loop-basic", "source": "here", "config": {"max_iterations": 3}},
        "context": {"module": "context-simple"},
        "raw": True,
    },
    "providers": [
        {"module": "provider-mock", "config": {"mode": "echo"}},
        {"module": "provider-mock", "instance_id": "second"},
    ],
    "tools": [{"module": "tool-bash", "source": {"git": "x"}}],
    "hooks": [],
    "agents": {"critic": {"tools": [{"module": "tool-todo"}]}, "poet": "a text"},
    "extras": 1,
}
BY_NAME: dict[str, Any] = {
    "session": {
        "orchestrator": "loop-basic",
        "orchestrator_source": "here",
        "context": "context-simple",
        "raw": True,
    },
    "orchestrator": {"config": {"max_iterations": 3}},
    **{key: value for key, value in BY_ENTRY.items() if key != "session"},
}
MIXED: dict[str, Any] = {**BY_NAME, "session": {**BY_NAME["session"], "context": {"module": "context-simple"}}}

names = st.sampled_from(["a", "b", "c"])
configs = st.dictionaries(names, st.integers(), min_size=1)
specs = st.fixed_dictionaries({"module": names}, optional={"source": names, "config": configs})
lists = st.lists(specs, max_size=3)
plans = st.fixed_dictionaries(
    {"session": st.fixed_dictionaries({"orchestrator": specs, "context": specs})},
    optional={"providers": lists, "tools": lists, "hooks": lists, "agents": st.just({})},
)


def facts(entry: PlanEntry) -> tuple[Any, ...]:
    return entry.place, entry.module_type, entry.module_id, entry.source, dict(entry.config), entry.instance_id


@pytest.mark.parametrize("plan", [BY_ENTRY, BY_NAME, MIXED])
def test_every_form_has_the_same_entries_in_mount_order(plan: dict[str, Any]) -> None:
    assert [facts(entry) for entry in MountPlan(plan).entries()] == [
        ("session.orchestrator", "orchestrator", "loop-basic", "here", {"max_iterations": 3}, None),
        ("session.context", "context", "context-simple", None, {}, None),
        ("providers[0]", "provider", "provider-mock", None, {"mode": "echo"}, None),
        ("providers[1]", "provider", "provider-mock", None, {}, "second"),
        ("tools[0]", "tool", "tool-bash", {"git": "x"}, {}, None),
    ]


def test_an_entry_hands_out_the_configuration_itself() -> None:
    orchestrator, provider = (MountPlan(BY_NAME).find(name) for name in ("loop-basic", "provider-mock"))

    assert orchestrator is not None
    assert orchestrator.config is BY_NAME["orchestrator"]["config"]
    assert provider is not None
    assert (provider.config, provider.raw) == ({"mode": "echo"}, BY_NAME["providers"][0])
    assert provider.config is BY_NAME["providers"][0]["config"]


def test_an_entry_says_where_its_parts_stand() -> None:
    by_name, by_entry = (MountPlan(plan).find("loop-basic") for plan in (BY_NAME, BY_ENTRY))

    assert by_name is not None
    assert by_entry is not None
    assert (by_name.config_place, by_name.source_place) == ("orchestrator.config", "session.orchestrator_source")
    assert (by_entry.config_place, by_entry.source_place) == (
        "session.orchestrator.config",
        "session.orchestrator.source",
    )


def test_two_instances_of_a_provider_are_two_modules() -> None:
    assert [entry.identity for entry in MountPlan(BY_ENTRY).entries()][2:] == [
        "provider-mock",
        "provider-mock/second",
        "tool-bash",
    ]


def test_what_is_malformed_has_a_slot_and_is_no_entry() -> None:
    plan = MountPlan(
        {"session": {"orchestrator": 3}, "tools": ["tool-bash", {"config": {}}, {"module": 7}], "hooks": {}}
    )

    assert [(slot.place, slot.raw) for slot in plan.slots()] == [
        ("session.orchestrator", 3),
        ("tools[0]", "tool-bash"),
        ("tools[1]", {"config": {}}),
        ("tools[2]", {"module": 7}),
    ]
    assert list(plan.entries()) == []


@pytest.mark.parametrize("plan", [{}, {"session": None}, {"session": [], "providers": None, "agents": []}])
def test_what_is_not_there_is_empty(plan: dict[str, Any]) -> None:
    view = MountPlan(plan)

    assert (list(view.slots()), list(view.overlays()), view.session_settings) == ([], [], {})
    assert view.lists() == {"providers": [], "tools": [], "hooks": []}


def test_agents_are_read_like_plans() -> None:
    found = {name: [entry.module_id for entry in overlay.entries()] for name, overlay in MountPlan(BY_ENTRY).overlays()}

    assert found == {"critic": ["tool-todo"]}


def test_entries_are_found_by_module_section_and_place() -> None:
    plan = MountPlan(BY_ENTRY)

    assert plan.find("tool-bash") == plan.at("tools[0]")
    assert plan.find("tool-bash", section="hooks") is None
    assert plan.find("tool-nobody-wrote") is None
    assert plan.at("tools[9]") is None
    assert [entry.place for entry in plan.entries(section="tools")] == ["tools[0]"]


def test_session_settings_are_what_is_not_a_module() -> None:
    assert MountPlan(BY_NAME).session_settings == MountPlan(BY_ENTRY).session_settings == {"raw": True}


@pytest.mark.parametrize(
    ("change", "problem", "is_fatal"),
    [
        ({"session": 3}, "session must be a dict, got int", True),
        ({"session": {"context": "c"}}, "session.orchestrator is missing", True),
        ({"session": {"orchestrator": "", "context": "c"}}, "session.orchestrator is missing", True),
        (
            {"session": {"orchestrator": ["x"], "context": "c"}},
            "session.orchestrator must be a string or a dict, got list",
            True,
        ),
        (
            {"session": {"orchestrator": "o", "context": "c", "injection_size_limit": "9"}},
            "session.injection_size_limit must be a number or None, got str",
            True,
        ),
        ({"orchestrator": "x"}, "orchestrator must be a dict, got str", True),
        ({"orchestrator": {"config": 3}}, "orchestrator.config must be a dict, got int", False),
        (
            {"session": {"orchestrator": {"module": "o"}, "context": "c"}, "orchestrator": {"config": {"a": 1}}},
            "orchestrator is not read, because session.orchestrator is an entry",
            False,
        ),
        ({"tools": {}}, "tools must be a list, got dict", True),
        ({"hooks": [{"module": "h"}, "x"]}, "hooks[1] must be a dict, got str", True),
        ({"hooks": [{"module": 7}]}, "hooks[0].module must be a string, got int", True),
        (
            {"providers": [{"module": "p", "instance_id": 7}]},
            "providers[0].instance_id must be a string, got int",
            True,
        ),
        ({"tools": [{"config": {}}]}, "tools[0].module is missing", False),
        ({"tools": [{"module": "t", "config": []}]}, "tools[0].config must be a dict, got list", False),
        ({"tools": [{"module": "t", "source": 3}]}, "tools[0].source must be a string, got int", False),
    ],
)
def test_each_problem_is_named_with_its_place(change: dict[str, Any], problem: str, is_fatal: bool) -> None:
    plan = {"session": {"orchestrator": "o", "context": "c"}, **change}

    assert [(str(found), found.is_fatal) for found in MountPlan(plan).problems()] == [(problem, is_fatal)]


@pytest.mark.parametrize("plan", [BY_NAME, MIXED])
def test_a_well_formed_plan_has_no_problem(plan: dict[str, Any]) -> None:
    assert not [found for found in MountPlan(plan).problems() if found.part != "source"]


def test_what_an_entry_repeats_of_the_section_beside_it_is_no_problem() -> None:
    entry = {"module": "o", "config": {"a": {"b": 1, "c": 2}, "d": 3}}
    plan = {"session": {"orchestrator": entry, "context": "c"}}

    assert not [*MountPlan({**plan, "orchestrator": {"config": {"a": {"b": 1}}}}).problems()]
    assert [*MountPlan({**plan, "orchestrator": {"config": {"a": {"b": 2}}}}).problems()]


def test_repeated_providers_need_instances() -> None:
    twice = [{"module": "p"}, {"module": "p"}, {"module": "p", "instance_id": "i"}, {"module": "q"}]

    assert MountPlan({"providers": twice}).repeated_without_instance() == {"p": 2}
    assert MountPlan(BY_ENTRY).repeated_without_instance() == {}


def test_both_forms_are_made_from_each_other() -> None:
    assert MountPlan(BY_ENTRY).by_name() == BY_NAME
    assert MountPlan(BY_NAME).by_entry() == BY_ENTRY
    assert MountPlan(MIXED).by_entry() == BY_ENTRY
    assert list(MountPlan(BY_ENTRY).by_name())[:3] == ["session", "orchestrator", "providers"]
    assert list(MountPlan(BY_ENTRY).by_name()["session"]) == ["orchestrator", "orchestrator_source", "context", "raw"]


@given(plans)
def test_the_way_to_names_and_back_loses_nothing(plan: dict[str, Any]) -> None:
    before = deepcopy(plan)

    assert MountPlan(MountPlan(plan).by_name()).by_entry() == plan == before


@given(plans)
def test_a_change_means_the_same_in_both_forms(plan: dict[str, Any]) -> None:
    def sourced(entry: PlanEntry) -> dict[str, Any]:
        return {**entry.spec, "source": f"from {entry.place}", "config": {**entry.config, "seen": True}}

    by_name = MountPlan(plan).by_name()

    assert MountPlan(MountPlan(by_name).map(sourced)).by_entry() == MountPlan(plan).map(sourced)


@pytest.mark.parametrize("plan", [BY_ENTRY, BY_NAME, MIXED])
def test_a_map_that_changes_nothing_gives_an_equal_plan(plan: dict[str, Any]) -> None:
    assert MountPlan(plan).map(lambda entry: entry.spec) == plan


@pytest.mark.parametrize("plan", [BY_ENTRY, BY_NAME])
def test_a_replaced_entry_keeps_its_form_and_the_plan_it_came_from(plan: dict[str, Any]) -> None:
    before = deepcopy(plan)
    entry = MountPlan(plan).find("loop-basic")
    assert entry is not None

    changed = MountPlan(plan).replace(entry, {"module": "loop-streaming", "config": {"a": 1}})

    assert plan == before
    (found,) = (one for one in MountPlan(changed).entries() if one.section == "orchestrator")
    assert (found.module_id, found.source, found.config) == ("loop-streaming", None, {"a": 1})
    assert found.is_by_name == entry.is_by_name
    assert changed["tools"] == plan["tools"]


@pytest.mark.parametrize("plan", [BY_ENTRY, BY_NAME])
def test_entries_can_be_taken_out(plan: dict[str, Any]) -> None:
    kept = MountPlan(plan).map(lambda entry: entry.spec if entry.module_type == "tool" else None)

    assert [entry.place for entry in MountPlan(kept).entries()] == ["tools[0]"]
    assert kept["session"] == {"raw": True}
    assert "orchestrator" not in kept
    assert kept["providers"] == []


@pytest.mark.parametrize("plan", [BY_ENTRY, BY_NAME])
def test_one_section_is_changed_alone(plan: dict[str, Any]) -> None:
    changed = MountPlan(plan).map(lambda entry: {"module": "tool-other"}, section="tools")

    assert changed == {**plan, "tools": [{"module": "tool-other"}]}


def test_what_is_malformed_stays_as_it_is_under_a_map() -> None:
    plan = {"session": {"orchestrator": 3}, "tools": [None, "x", {"module": "t"}], "hooks": "none"}

    changed = MountPlan(plan).map(lambda entry: {**entry.spec, "config": {}})

    assert changed == {**plan, "tools": [None, "x", {"module": "t", "config": {}}]}
