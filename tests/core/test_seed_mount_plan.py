"""The plans and calls of the published mount-plan specification work as they are written there."""

import copy
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, ModuleLoader
from amplifier_core.validation import MountPlanValidator

Plan = dict[str, Any]

MINIMAL: Plan = {
    "session": {"orchestrator": "loop-basic", "context": "context-simple"},
    "providers": [{"module": "provider-mock"}],
}

DEVELOPMENT: Plan = {
    "session": {"orchestrator": "loop-streaming", "context": "context-persistent"},
    "context": {"config": {"max_tokens": 200000, "compact_threshold": 0.92}},
    "providers": [
        {
            "module": "provider-anthropic",
            "config": {"model": "claude-sonnet-4-5", "api_key": "${ANTHROPIC_API_KEY}"},
        }
    ],
    "tools": [
        {"module": "tool-filesystem", "config": {"allowed_paths": ["."], "require_approval": False}},
        {"module": "tool-bash"},
        {"module": "tool-web"},
    ],
    "hooks": [
        {"module": "hooks-logging", "config": {"output_dir": ".amplifier/logs"}},
        {"module": "hooks-backup"},
    ],
}

PRODUCTION: Plan = {
    "session": {
        "orchestrator": "loop-events",
        "context": "context-persistent",
        "injection_budget_per_turn": 500,
        "injection_size_limit": 8192,
    },
    "context": {"config": {"max_tokens": 200000, "compact_threshold": 0.95, "auto_compact": True}},
    "providers": [
        {
            "module": "provider-anthropic",
            "config": {"model": "claude-sonnet-4-5", "api_key": "${ANTHROPIC_API_KEY}", "max_tokens": 4096},
        }
    ],
    "tools": [
        {"module": "tool-filesystem", "config": {"allowed_paths": ["/app/data"], "require_approval": True}},
    ],
    "hooks": [
        {"module": "hooks-scheduler-cost-aware", "config": {"budget_limit": 10.0, "alert_threshold": 8.0}},
        {"module": "hooks-logging"},
        {"module": "hooks-backup"},
    ],
}

EVERY_KEY: Plan = {
    "session": {
        "orchestrator": "loop-basic",
        "orchestrator_source": "git+https://github.com/org/repo@ref",
        "context": "context-simple",
        "context_source": "./relative/path",
        "injection_budget_per_turn": None,
        "injection_size_limit": None,
    },
    "orchestrator": {"config": {"max_iterations": 10}},
    "context": {"config": {"max_tokens": 200000, "compact_threshold": 0.92, "auto_compact": True}},
    "providers": [{"module": "provider-mock", "source": "file:///absolute/path", "config": {}}],
    "tools": [{"module": "tool-bash", "source": "/absolute/path", "config": {}}],
    "agents": {
        "researcher": {
            "description": "Finds things out",
            "session": {"orchestrator": "loop-streaming"},
            "providers": [],
            "tools": [{"module": "tool-web"}],
            "hooks": [],
            "system": {"instruction": "You find things out."},
        }
    },
    "hooks": [{"module": "hooks-logging", "source": "package-name", "config": {}}],
}

PLANS = {"minimal": MINIMAL, "development": DEVELOPMENT, "production": PRODUCTION}

SECTIONS = {"providers": "provider", "tools": "tool", "hooks": "hook"}


class StandIns:
    """Modules of the ids that a plan names, as entry points of an installed distribution or as folders."""

    def __init__(self, folders: Any) -> None:
        self.folders = folders
        self.written: dict[str, Any] = {}

    def install(self, plan: Plan) -> Plan:
        """Install every module of the plan, ahead of any other distribution that offers it."""
        for module_type, module_id in _named_in(plan):
            sys.path.insert(0, str(self.folders.install(self._write(module_type, module_id))))
        return plan

    def place(self, plan: Plan) -> Plan:
        """Return the plan with the source of each module filled in: an absolute path or a `file://` URL."""
        plan = copy.deepcopy(plan)
        for name in ("orchestrator", "context"):
            plan["session"][f"{name}_source"] = str(self._write(name, plan["session"][name]).folder)
        for section, module_type in SECTIONS.items():
            for entry in plan.get(section, []):
                entry["source"] = self._write(module_type, entry["module"]).folder.as_uri()
        return plan

    def config_of(self, module_id: str) -> Any:
        """Return what the module's `mount` was given, the one time it was called."""
        (config,) = self.written[module_id].code.mounts
        return config

    def _write(self, module_type: str, module_id: str) -> Any:
        package = "stand_in_" + module_id.replace("-", "_")
        module = self.folders.write(module_type, module_id=module_id, package=package)
        lines = ['[project.entry-points."amplifier.modules"]', f'{module_id} = "{package}:mount"']
        (module.folder / "pyproject.toml").write_text("\n".join(lines))
        self.written[module_id] = module
        return module


def _named_in(plan: Plan) -> list[tuple[str, str]]:
    session = [(name, plan["session"][name]) for name in ("orchestrator", "context")]
    return session + [
        (module_type, entry["module"]) for section, module_type in SECTIONS.items() for entry in plan.get(section, [])
    ]


@pytest.fixture
def stand_ins(modules: Any) -> StandIns:
    return StandIns(modules)


@pytest.mark.parametrize("plan", [*PLANS.values(), EVERY_KEY], ids=[*PLANS, "every key"])
def test_every_documented_plan_is_valid(plan: Plan) -> None:
    result = MountPlanValidator().validate(plan)

    assert (result.passed, result.errors, result.warnings, result.format_errors()) == (True, [], [], "No errors")


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("provide", [StandIns.install, StandIns.place], ids=["installed", "by path"])
async def test_every_documented_plan_runs_with_each_module_given_its_own_config(
    stand_ins: StandIns, provide: Callable[[StandIns, Plan], Plan], plan: Plan
) -> None:
    session = AmplifierSession(provide(stand_ins, plan))

    await session.initialize()
    response = await session.execute("Hello, world!")
    await session.cleanup()

    assert response == "answer to Hello, world!"
    assert session.status.load_failures == []
    expected = {entry["module"]: entry.get("config", {}) for section in SECTIONS for entry in plan.get(section, [])}
    expected[plan["session"]["orchestrator"]] = {}
    expected[plan["session"]["context"]] = plan.get("context", {}).get("config", {})
    assert {module_id: stand_ins.config_of(module_id) for module_id in stand_ins.written} == expected
    assert session.coordinator.get_mounted("tools") == [entry["module"] for entry in plan.get("tools", [])]


async def test_the_production_plan_limits_what_hooks_inject() -> None:
    coordinator = AmplifierSession(PRODUCTION).coordinator

    assert (coordinator.injection_budget_per_turn, coordinator.injection_size_limit) == (500, 8192)


async def test_a_plan_without_injection_limits_has_the_documented_defaults() -> None:
    coordinator = AmplifierSession(MINIMAL).coordinator

    assert (coordinator.injection_budget_per_turn, coordinator.injection_size_limit) == (10000, 10240)


async def test_limits_of_none_are_no_limits() -> None:
    coordinator = AmplifierSession(EVERY_KEY).coordinator

    assert (coordinator.injection_budget_per_turn, coordinator.injection_size_limit) == (None, None)


async def test_a_reference_to_an_environment_variable_is_left_to_the_application(
    stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a secret")

    async with AmplifierSession(stand_ins.install(DEVELOPMENT)):
        config = stand_ins.config_of("provider-anthropic")

    assert config == {"model": "claude-sonnet-4-5", "api_key": "${ANTHROPIC_API_KEY}"}


async def test_the_context_gets_its_config_from_the_section_of_that_name(stand_ins: StandIns) -> None:
    section = {"context": {"config": {"max_tokens": 200000, "compact_threshold": 0.92, "auto_compact": True}}}

    async with AmplifierSession(stand_ins.install({**MINIMAL, **section})):
        config = stand_ins.config_of("context-simple")

    assert config is section["context"]["config"]


async def test_the_usage_example_runs(stand_ins: StandIns) -> None:
    stand_ins.install(MINIMAL)

    mount_plan = {
        "session": {"orchestrator": "loop-basic", "context": "context-simple"},
        "providers": [{"module": "provider-mock"}],
    }
    loader = ModuleLoader()
    session = AmplifierSession(mount_plan, loader=loader)
    await session.initialize()
    response = await session.execute("Hello, world!")
    await session.cleanup()

    assert session.loader is loader
    assert response == "answer to Hello, world!"


def _create_session(mount_plan: Any) -> AmplifierSession:
    validator = MountPlanValidator()
    result = validator.validate(mount_plan)
    if not result.passed:
        print(result.format_errors())  # noqa: T201 - as the specification shows it
        sys.exit(1)
    return AmplifierSession(mount_plan)


def test_after_the_validator_passed_a_session_can_be_created() -> None:
    assert _create_session(MINIMAL).config is MINIMAL


def test_the_validators_errors_can_be_printed_before_leaving(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        _create_session({"session": {"orchestrator": "loop-basic"}, "tools": [{"source": "tool-bash"}]})

    printed = capsys.readouterr().out
    assert leaving.value.code == 1
    assert printed.startswith("Mount Plan Validation Failed:")
    assert "Session section missing required 'context' field" in printed
    assert "Module spec at tools[0] missing required 'module' field" in printed
    assert printed.rstrip().endswith("Total: 2 error(s)")


@pytest.mark.parametrize(
    ("plan", "check"),
    [
        (["not", "a", "dict"], "root_type"),
        ({"providers": []}, "session_present"),
        ({"session": {"context": "context-simple"}}, "session_orchestrator_present"),
        ({"session": {"orchestrator": "loop-basic"}}, "session_context_present"),
        ({**MINIMAL, "providers": [{"config": {}}]}, "providers[0]_module_required"),
        ({**MINIMAL, "tools": [{"module": "tool-bash", "config": "fast"}]}, "tools[0]_config_type"),
        ({**MINIMAL, "hooks": [{"module": "hooks-logging", "source": 7}]}, "hooks[0]_source_type"),
    ],
    ids=["root", "session", "orchestrator", "context", "module", "config", "source"],
)
def test_the_validator_finds_each_documented_mistake(plan: Any, check: str) -> None:
    result = MountPlanValidator().validate(plan)

    assert not result.passed
    assert [error.name for error in result.errors] == [check]


def test_an_unknown_section_is_a_warning_and_no_error() -> None:
    result = MountPlanValidator().validate({**MINIMAL, "extras": {}})

    assert result.passed
    assert [warning.message for warning in result.warnings] == ["Unknown sections will be ignored: ['extras']"]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({}, "Configuration is required"),
        ({"providers": []}, "Configuration must specify session.orchestrator"),
        ({"session": {"orchestrator": "loop-basic"}}, "Configuration must specify session.context"),
    ],
)
def test_a_missing_required_field_is_a_value_error_at_once(plan: Plan, message: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the message is compared whole
        AmplifierSession(plan)

    assert str(refusal.value) == message


@pytest.mark.parametrize("name", ["orchestrator", "context"])
async def test_an_orchestrator_or_context_that_cannot_be_loaded_is_fatal(stand_ins: StandIns, name: str) -> None:
    stand_ins.install(MINIMAL)
    plan = {**MINIMAL, "session": {**MINIMAL["session"], name: f"{name}-that-nobody-wrote"}}

    with pytest.raises(RuntimeError, match=f"{name}-that-nobody-wrote"):
        await AmplifierSession(plan).initialize()


async def test_an_agent_loop_needs_at_least_one_provider(stand_ins: StandIns) -> None:
    plan = {**MINIMAL, "providers": []}

    async with AmplifierSession(stand_ins.install(plan)) as session:
        with pytest.raises(RuntimeError, match="No providers mounted"):
            await session.execute("Hello, world!")


async def test_a_module_that_is_not_found_is_a_warning_and_the_session_goes_on(
    stand_ins: StandIns, caplog: pytest.LogCaptureFixture
) -> None:
    stand_ins.install(MINIMAL)
    plan = {**MINIMAL, "tools": [{"module": "tool-that-nobody-wrote"}]}

    async with AmplifierSession(plan) as session:
        response = await session.execute("Hello, world!")

    assert response == "answer to Hello, world!"
    assert [failure["module_id"] for failure in session.status.load_failures] == ["tool-that-nobody-wrote"]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any("tool-that-nobody-wrote" in warning for warning in warnings)


async def test_a_module_that_refuses_its_config_is_skipped_with_a_warning(
    stand_ins: StandIns, caplog: pytest.LogCaptureFixture
) -> None:
    stand_ins.install(MINIMAL)
    refusing = stand_ins.folders.write("tool", mount="""raise ValueError(f"max_size must be positive: {config}")""")
    stand_ins.folders.install(refusing)
    plan = {**MINIMAL, "tools": [{"module": refusing.module_id, "config": {"max_size": -1}}]}

    async with AmplifierSession(plan) as session:
        response = await session.execute("Hello, world!")

    assert response == "answer to Hello, world!"
    assert session.coordinator.get_mounted("tools") == []
    (failure,) = session.status.load_failures
    assert (failure["module_id"], failure["error"]) == (
        refusing.module_id,
        "max_size must be positive: {'max_size': -1}",
    )
    assert "max_size must be positive" in caplog.text


@pytest.mark.parametrize("form", [str, Path.as_uri], ids=["absolute path", "file URL"])
async def test_a_local_source_needs_no_resolver(stand_ins: StandIns, form: Callable[[Path], str]) -> None:
    stand_ins.install(MINIMAL)
    tool = stand_ins.folders.write("tool")
    plan = {**MINIMAL, "tools": [{"module": tool.module_id, "source": form(tool.folder)}]}

    async with AmplifierSession(plan) as session:
        assert session.coordinator.get_mounted("tools") == [tool.name]


@pytest.mark.parametrize("source", ["git+https://github.com/org/repo@ref", "./relative/path", "package-name"])
async def test_any_source_is_handed_to_the_resolver_as_it_is_written(stand_ins: StandIns, source: str) -> None:
    stand_ins.install(MINIMAL)
    tool = stand_ins.folders.write("tool")
    session = AmplifierSession({**MINIMAL, "tools": [{"module": tool.module_id, "source": source}]})
    await session.coordinator.mount("module-source-resolver", stand_ins.folders.resolver)

    async with session:
        assert session.coordinator.get_mounted("tools") == [tool.name]

    assert (tool.module_id, source, source) in stand_ins.folders.resolver.calls


@pytest.mark.parametrize("source", [None, "git+https://github.com/org/repo@ref", "package-name"])
async def test_without_a_resolver_an_installed_module_is_found_whatever_its_source_says(
    stand_ins: StandIns, source: str | None
) -> None:
    plan = {**MINIMAL, "tools": [{"module": "tool-bash", "source": source} if source else {"module": "tool-bash"}]}

    async with AmplifierSession(stand_ins.install(plan)) as session:
        assert session.coordinator.get_mounted("tools") == ["tool-bash"]


async def test_a_module_is_looked_for_among_entry_points_and_then_in_directories(stand_ins: StandIns) -> None:
    installed, both, folder_only = (stand_ins.folders.write("tool") for _ in range(3))
    stand_ins.folders.install(installed)
    stand_ins.folders.install(both)
    loader = ModuleLoader(search_paths=[both.folder.parent, folder_only.folder.parent])
    stand_ins.install(MINIMAL)
    plan = {**MINIMAL, "tools": [module.entry() for module in (installed, both, folder_only)]}

    async with AmplifierSession(plan, loader=loader) as session:
        assert session.coordinator.get_mounted("tools") == [installed.name, both.name, folder_only.name]

    assert Path(both.code.__file__).parents[1] != both.folder
    assert Path(folder_only.code.__file__).parents[1] == folder_only.folder


async def test_agents_are_data_that_the_kernel_hands_on_and_never_mounts(stand_ins: StandIns) -> None:
    plan = {**MINIMAL, "agents": EVERY_KEY["agents"]}

    async with AmplifierSession(stand_ins.install(plan)) as session:
        assert session.coordinator.config["agents"] is EVERY_KEY["agents"]
        assert session.coordinator.get_mounted("tools") == []


async def test_an_agents_overlay_makes_the_plan_of_a_child_session(
    stand_ins: StandIns, listen: Callable[..., list[tuple[str, Plan]]]
) -> None:
    parent = AmplifierSession(stand_ins.install({**MINIMAL, "agents": EVERY_KEY["agents"]}))
    overlay = parent.config["agents"]["researcher"]
    plan = {**MINIMAL, "tools": overlay["tools"]}
    child = AmplifierSession(stand_ins.install(plan), parent_id=parent.session_id)
    forks = listen(child.coordinator, "session:fork")

    async with parent, child:
        assert child.coordinator.get_mounted("tools") == ["tool-web"]

    assert [data["parent"] for _, data in forks] == [parent.session_id]
