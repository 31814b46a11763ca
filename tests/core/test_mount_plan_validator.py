"""The shape of a mount plan: every rule with its exact message, and no input that makes the validator raise."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplifier_core.validation import MountPlanValidationResult, MountPlanValidator, ValidationCheck

STRINGS = {"orchestrator": "loop-basic", "context": "context-simple"}
EXPECTED = "{'module': 'module-name', 'source': '...', 'config': {...}}"


def validate(mount_plan: Any) -> MountPlanValidationResult:
    return MountPlanValidator().validate(mount_plan)


def with_sections(**sections: Any) -> dict[str, Any]:
    return {"session": dict(STRINGS), **sections}


def with_orchestrator(spec: Any, **session: Any) -> dict[str, Any]:
    return {"session": {**STRINGS, "orchestrator": spec, **session}}


@pytest.mark.parametrize(
    ("mount_plan", "name", "message"),
    [
        (None, "root_type", "Mount plan must be a dict, got NoneType"),
        ([], "root_type", "Mount plan must be a dict, got list"),
        ({}, "session_present", "Mount plan missing required 'session' section"),
        ({"session": 3}, "session_type", "Session section must be a dict, got int"),
        (
            {"session": {"context": "c"}},
            "session_orchestrator_present",
            "Session section missing required 'orchestrator' field",
        ),
        (
            {"session": {"orchestrator": "o"}},
            "session_context_present",
            "Session section missing required 'context' field",
        ),
        (with_sections(providers={}), "providers_type", "'providers' section must be a list, got dict"),
        (with_sections(tools="bash"), "tools_type", "'tools' section must be a list, got str"),
        (with_sections(hooks=None), "hooks_type", "'hooks' section must be a list, got NoneType"),
        (
            with_sections(tools=[{"module": "a"}, "tool-bash"]),
            "tools[1]_type",
            "Module spec at tools[1] must be a dict, got str",
        ),
        (
            with_orchestrator(["loop"]),
            "session.orchestrator_type",
            "Module spec at session.orchestrator must be a dict, got list",
        ),
        (
            with_orchestrator(None),
            "session.orchestrator_type",
            "Module spec at session.orchestrator must be a dict, got NoneType",
        ),
        (
            with_sections(providers=[{"source": "here"}]),
            "providers[0]_module_required",
            "Module spec at providers[0] missing required 'module' field.\n"
            f"  Got: {{'source': 'here'}}\n  Expected: {EXPECTED}",
        ),
        (
            with_orchestrator({}),
            "session.orchestrator_module_required",
            "Module spec at session.orchestrator missing required 'module' field.\n"
            f"  Got: {{}}\n  Expected: {EXPECTED}",
        ),
        (
            with_sections(hooks=[{"module": 7}]),
            "hooks[0]_module_type",
            "Module path at hooks[0] must be a string, got int",
        ),
        (
            with_sections(hooks=[{"module": None}]),
            "hooks[0]_module_type",
            "Module path at hooks[0] must be a string, got NoneType",
        ),
        (with_sections(tools=[{"module": ""}]), "tools[0]_module_empty", "Module path at tools[0] cannot be empty"),
        (
            with_orchestrator(""),
            "session.orchestrator_module_empty",
            "Module path at session.orchestrator cannot be empty",
        ),
        (
            with_sections(tools=[{"module": "a", "config": ["x"]}]),
            "tools[0]_config_type",
            "Config at tools[0] must be a dict, got list",
        ),
        (
            with_sections(tools=[{"module": "a", "config": None}]),
            "tools[0]_config_type",
            "Config at tools[0] must be a dict, got NoneType",
        ),
        (
            with_sections(tools=[{"module": "a", "source": {"git": "x"}}]),
            "tools[0]_source_type",
            "Source at tools[0] must be a string, got dict",
        ),
        (
            with_orchestrator("loop-basic", orchestrator_source=3),
            "session.orchestrator_source_type",
            "Source at session.orchestrator must be a string, got int",
        ),
        (
            with_orchestrator("loop-basic", context_source=[]),
            "session.context_source_type",
            "Source at session.context must be a string, got list",
        ),
        (with_sections(orchestrator="x"), "orchestrator_type", "'orchestrator' section must be a dict, got str"),
        (with_sections(context=None), "context_type", "'context' section must be a dict, got NoneType"),
        (with_sections(context={"config": 3}), "context_config_type", "Config at context must be a dict, got int"),
        (
            with_sections(orchestrator={"config": None}),
            "orchestrator_config_type",
            "Config at orchestrator must be a dict, got NoneType",
        ),
    ],
)
def test_each_mistake_is_one_error_with_its_own_message(mount_plan: Any, name: str, message: str) -> None:
    result = validate(mount_plan)

    assert result.errors == [ValidationCheck(name, False, message, "error")]
    assert not result.passed


@pytest.mark.parametrize(
    ("mount_plan", "name", "message"),
    [
        (with_sections(), "root_type", "Mount plan is a dict"),
        (with_sections(), "session_present", "Session section present"),
        ({"session": None}, "session_present", "Session section present"),
        (with_sections(providers=[]), "providers_empty", "'providers' section is empty"),
        (with_sections(tools=[]), "tools_empty", "'tools' section is empty"),
        (with_sections(hooks=[]), "hooks_empty", "'hooks' section is empty"),
        (
            with_sections(tools=[{"module": "tool-bash"}]),
            "tools[0]_module_valid",
            "Module path 'tool-bash' at tools[0] is valid",
        ),
        (
            with_orchestrator({"module": "loop-basic"}),
            "session.orchestrator_module_valid",
            "Module path 'loop-basic' at session.orchestrator is valid",
        ),
        (
            with_sections(),
            "session.context_module_valid",
            "Module path 'context-simple' at session.context is valid",
        ),
    ],
)
def test_what_is_right_is_said_too(mount_plan: Any, name: str, message: str) -> None:
    assert ValidationCheck(name, True, message, "info") in validate(mount_plan).checks


def test_a_plan_that_is_no_dict_is_not_looked_at_further() -> None:
    assert len(validate("session").checks) == 1


def test_unknown_sections_are_a_warning_with_their_names_in_order() -> None:
    result = validate(with_sections(zebra=1, apple=2))

    assert result.warnings == [
        ValidationCheck("unknown_sections", False, "Unknown sections will be ignored: ['apple', 'zebra']", "warning")
    ]
    assert result.passed


def test_keys_of_any_type_can_be_unknown_sections() -> None:
    result = validate({**with_sections(), 3: "x", None: "y", ("a",): "z"})

    assert [warning.message for warning in result.warnings] == ["Unknown sections will be ignored: [('a',), 3, None]"]


def test_a_string_with_its_source_and_its_section_is_a_complete_spec() -> None:
    result = validate(
        {
            "session": {**STRINGS, "orchestrator_source": "git+https://host/org/loop", "context_source": "/modules/c"},
            "orchestrator": {"config": {"max_iterations": 3}},
            "context": {"config": {"max_tokens": 200_000}},
            "agents": {"writer": {"description": "writes"}},
        }
    )

    assert (result.passed, result.warnings) == (True, [])


@pytest.mark.parametrize("agents", [None, [], "text", {"a": {"providers": 3}}])
def test_agents_are_the_applications_business(agents: Any) -> None:
    assert validate(with_sections(agents=agents)).checks == validate(with_sections()).checks


def test_a_plan_is_read_in_a_fixed_order() -> None:
    plan = {
        "hooks": [{"module": "h"}],
        "tools": [{"module": "t"}],
        "providers": [{"module": "p"}],
        "session": {"context": "c", "orchestrator": "o"},
    }

    names = [check.name for check in validate(plan).checks if check.name.endswith("_valid")]

    assert names == [
        "session.orchestrator_module_valid",
        "session.context_module_valid",
        "providers[0]_module_valid",
        "tools[0]_module_valid",
        "hooks[0]_module_valid",
    ]


def test_every_mistake_is_reported_at_once() -> None:
    result = validate({"session": {}, "providers": [{"config": 3, "source": 4}], "tools": 5})

    assert [error.name for error in result.errors] == [
        "session_orchestrator_present",
        "session_context_present",
        "providers[0]_module_required",
        "providers[0]_config_type",
        "providers[0]_source_type",
        "tools_type",
    ]


def test_secrets_never_reach_a_message() -> None:
    spec = {"config": {"api_key": "sk-live", "nested": [{"Password": "hunter2"}], "model": "m"}}

    (error,) = validate(with_sections(providers=[spec])).errors

    assert "sk-live" not in error.message
    assert "hunter2" not in error.message
    assert "'api_key': '[REDACTED]'" in error.message
    assert "'model': 'm'" in error.message


@pytest.mark.parametrize(
    ("attribute", "names"),
    [
        ("REQUIRED_SECTIONS", {"session"}),
        ("OPTIONAL_SECTIONS", {"providers", "tools", "hooks", "agents"}),
        ("REQUIRED_SESSION_FIELDS", {"orchestrator", "context"}),
        ("REQUIRED_MODULE_SPEC_FIELDS", {"module"}),
    ],
)
def test_the_validator_says_which_names_it_knows(attribute: str, names: set[str]) -> None:
    assert getattr(MountPlanValidator, attribute) == names


def test_the_summary_counts_checks_errors_and_warnings() -> None:
    assert validate(with_sections(extra=1)).summary() == "PASSED: 4/5 checks passed (0 errors, 1 warnings)"
    assert validate({}).summary() == "FAILED: 1/2 checks passed (1 errors, 0 warnings)"


def test_errors_are_formatted_as_a_numbered_list() -> None:
    assert validate({"session": {"context": ""}}).format_errors() == (
        "Mount Plan Validation Failed:\n"
        "\n"
        "  1. [session_orchestrator_present] Session section missing required 'orchestrator' field\n"
        "  2. [session.context_module_empty] Module path at session.context cannot be empty\n"
        "\n"
        "Total: 2 error(s)"
    )


def test_a_plan_without_errors_says_so() -> None:
    assert validate(with_sections(extra=1)).format_errors() == "No errors"


def test_a_result_can_be_built_by_hand() -> None:
    result = MountPlanValidationResult()
    result.add(ValidationCheck("mine", False, "no", "warning"))

    assert (result.passed, len(result.warnings), MountPlanValidationResult().checks) == (True, 1, [])


def test_a_plan_that_holds_itself_is_validated_like_any_other() -> None:
    plan = with_sections(providers=[{}])
    plan["agents"] = plan
    plan["providers"][0]["config"] = plan

    result = validate(plan)

    assert [error.name for error in result.errors] == ["providers[0]_module_required"]


def test_a_spec_nested_deeper_than_python_can_print_is_still_reported() -> None:
    spec: dict[str, Any] = {}
    for _ in range(100_000):
        spec = {"config": spec}

    assert [error.name for error in validate(with_sections(tools=[spec])).errors] == ["tools[0]_module_required"]


class Unreadable(dict[str, Any]):
    def __contains__(self, key: object) -> bool:
        raise RuntimeError("closed")


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


class Endless(dict[str, Any]):
    def __iter__(self) -> Iterator[str]:
        raise OSError("gone")


@pytest.mark.parametrize("mount_plan", [Unreadable(session=STRINGS), Endless(session=STRINGS), {Unprintable(): 1}])
def test_a_plan_that_cannot_be_read_is_an_error_not_an_exception(mount_plan: Any) -> None:
    assert not validate(mount_plan).passed


def test_a_spec_that_cannot_be_printed_is_still_reported() -> None:
    (error,) = validate(with_sections(tools=[{"config": {"x": Unprintable()}}])).errors

    assert error.name == "tools[0]_module_required"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["session", "orchestrator", "context", "providers", "tools", "module", "config", "source"])
            | st.integers()
            | st.none(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(anything)
def test_nothing_makes_the_validator_raise(mount_plan: Any) -> None:
    result = validate(mount_plan)

    assert result.checks
    assert result.passed == (not result.errors)
