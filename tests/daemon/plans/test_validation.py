"""The rules of a mount plan."""

from pathlib import Path
from typing import Any

import pytest

from amplifierd import open_home
from amplifierd.plans.validation import validate_mount_plan

PORTABLE: dict[str, Any] = {
    "session": {
        "orchestrator": {"module": "loop-basic", "source": "a/b", "config": {}},
        "context": {"module": "context-simple", "source": {"collection": "a", "profile": "b"}},
        "injection_budget_per_turn": None,
    },
    "providers": [{"module": "provider-a", "source": "a/b", "config": {}}],
    "tools": [],
    "hooks": [],
    "agents": {},
}
RESOLVED: dict[str, Any] = {
    "session": {
        "orchestrator": "loop-basic",
        "orchestrator_source": "file:///x",
        "context": "context-simple",
        "context_source": "file:///y",
    },
    "orchestrator": {"config": {"a": 1}},
    "context": {"config": {}},
    "providers": [{"module": "provider-a"}],
}


@pytest.mark.parametrize("plan", [PORTABLE, RESOLVED], ids=["portable", "resolved"])
def test_both_forms_are_valid(plan: dict[str, Any]) -> None:
    report = validate_mount_plan(plan)

    assert report.passed
    assert (report.errors, report.warnings) == ((), ())
    assert {check.severity for check in report.checks} == {"info"}


@pytest.mark.parametrize(
    ("change", "name", "severity", "location", "message"),
    [
        ({"session": None}, "session", "error", "session", "session must be a mapping"),
        (
            {"session": {"context": "c"}},
            "session-orchestrator",
            "error",
            "session.orchestrator",
            "session.orchestrator",
        ),
        (
            {"session": {"orchestrator": "o", "context": ""}},
            "session-context",
            "error",
            "session.context",
            "must specify",
        ),
        ({"session": {"orchestrator": 3, "context": "c"}}, "wrong-type", "error", "session.orchestrator", "got int"),
        (
            {"session": {"orchestrator": {"config": {}}, "context": "c"}},
            "module-missing",
            "error",
            "session.orchestrator",
            "",
        ),
        (
            {"session": {"orchestrator": {"module": ""}, "context": "c"}},
            "module-missing",
            "error",
            "session.orchestrator",
            "",
        ),
        ({"providers": {}}, "wrong-type", "error", "providers", "providers must be a list"),
        ({"tools": {}}, "wrong-type", "error", "tools", "tools must be a list, got dict"),
        ({"agents": []}, "wrong-type", "error", "agents", "agents must be a mapping, got list"),
        ({"tools": ["x"]}, "wrong-type", "error", "tools[0]", "tools[0] must be a mapping, got str"),
        ({"tools": [{}]}, "module-missing", "warning", "tools[0]", "Module entry at tools[0] has no 'module'"),
        ({"tools": [{"module": 1}]}, "wrong-type", "error", "tools[0].module", "must be a string"),
        ({"tools": [{"module": []}]}, "wrong-type", "error", "tools[0].module", "must be a string"),
        ({"providers": [{"module": {}}]}, "wrong-type", "error", "providers[0].module", "must be a string"),
        ({"tools": [{"module": "tool-a", "config": 1}]}, "wrong-type", "error", "tools[0].config", "must be a mapping"),
        (
            {"tools": [{"module": "tool-a", "source": 1}]},
            "wrong-type",
            "error",
            "tools[0].source",
            "string or a mapping",
        ),
        ({"providers": []}, "providers-missing", "error", "providers", "At least one provider must be configured"),
        (
            {"providers": [{"module": "provider-a"}, {"module": "provider-a"}]},
            "instance-id-missing",
            "error",
            "providers",
            "2 entries of provider-a",
        ),
        ({"hooks": [{"module": "hooks-a"}] * 2}, "duplicate-module", "warning", "hooks", "hooks names hooks-a 2 times"),
        ({"ui": {}}, "unknown-key", "warning", "ui", "Unknown key 'ui'"),
        (
            {"session": {"orchestrator": "o", "context": "c", "injection_size_limit": -1}},
            "wrong-type",
            "error",
            "session.injection_size_limit",
            "≥ 0 or null",
        ),
        ({"orchestrator": {"config": []}}, "wrong-type", "error", "orchestrator.config", "must be a mapping"),
        (
            {"session": {"orchestrator": "o", "orchestrator_source": 3, "context": "c"}},
            "wrong-type",
            "error",
            "session.orchestrator_source",
            "session.orchestrator_source must be a string or a mapping, got int",
        ),
    ],
)
def test_every_rule_is_checked(change: dict[str, Any], name: str, severity: str, location: str, message: str) -> None:
    report = validate_mount_plan({**PORTABLE, **change})

    found = [*report.errors, *report.warnings]
    assert (name, severity, location) in [(check.name, check.severity, check.location) for check in found]
    assert any(message in check.message for check in found)
    assert report.passed is (severity == "warning")


@pytest.mark.parametrize("plan", [None, {}, [], "text"])
def test_nothing_is_not_a_plan(plan: Any) -> None:
    [error] = validate_mount_plan(plan).errors

    assert error.message == "Configuration is required"


def test_one_provider_may_have_many_instances() -> None:
    providers = [{"module": "provider-a"}, {"module": "provider-a", "instance_id": "x"}]

    assert validate_mount_plan({**PORTABLE, "providers": providers}).passed


def test_sources_are_checked_where_somebody_can() -> None:
    report = validate_mount_plan(RESOLVED, check_source=lambda module, source: f"no {module} in {source}")

    assert [check.location for check in report.warnings] == ["session.orchestrator.source", "session.context.source"]
    assert {check.name for check in report.warnings} == {"source-unresolved"}
    assert report.passed


def test_a_local_source_without_the_module_is_a_warning_whatever_the_module_is_called(tmp_path: Path) -> None:
    plan = {**PORTABLE, "tools": [{"module": "letters", "source": tmp_path.as_uri()}]}

    report = open_home(tmp_path / "home").plans.validate(plan)

    told = [check.message for check in report.warnings if check.location.startswith("tools")]
    assert len(told) == 1
    assert f"{tmp_path} has no package amplifier_module_letters" in told[0]
