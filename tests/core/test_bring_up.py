"""Bringing a session up: what is loaded in which order, with what, and who is told in the end."""

import logging
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from amplifier_core import AmplifierSession, CancellationToken, ModuleCoordinator, ModuleLoader
from amplifier_core.mount_plan import MountPlan
from amplifier_core.validation.base import import_module_from_path

Listen = Callable[..., list[tuple[str, dict[str, Any]]]]

NOTES_ITSELF = 'coordinator.session_state.setdefault("mounted", []).append(NAME)\n'


def mounting(point: str) -> str:
    """Return the body of a mount function that notes its name in the session's state."""
    return f'{NOTES_ITSELF}await coordinator.mount("{point}", thing, name=NAME)'


async def test_modules_are_brought_up_in_a_fixed_order_whatever_the_plans(modules: Any) -> None:
    written = {
        kind: [modules.write(kind, mount=f"{NOTES_ITSELF}{body}") for _ in range(2)]
        for kind, body in {
            "hook": 'coordinator.hooks.register("tool:pre", thing)',
            "tool": 'await coordinator.mount("tools", thing)',
            "provider": 'await coordinator.mount("providers", thing)',
        }.items()
    }
    context = modules.write("context", mount=mounting("context"))
    orchestrator = modules.write("orchestrator", mount=mounting("orchestrator"))
    plan = {
        "hooks": [module.entry() for module in written["hook"]],
        "tools": [module.entry() for module in written["tool"]],
        "providers": [module.entry() for module in written["provider"]],
        "session": {"context": context.module_id, "orchestrator": orchestrator.module_id},
    }
    session = modules.session(plan, parent_id="parent")
    session.coordinator.hooks.register(
        "session:fork", lambda event, data: session.coordinator.session_state["mounted"].append(event)
    )

    await session.initialize()

    everything = [orchestrator, context, *written["provider"], *written["tool"], *written["hook"]]
    assert session.coordinator.session_state["mounted"] == [*(module.name for module in everything), "session:fork"]
    assert session.status.load_failures == []


@pytest.mark.parametrize("orchestrator_form", ["string", "mapping"])
@pytest.mark.parametrize("context_form", ["string", "mapping"])
async def test_both_forms_of_the_plan_bring_config_and_source_to_the_module(
    modules: Any, orchestrator_form: str, context_form: str
) -> None:
    written = {"orchestrator": modules.write("orchestrator"), "context": modules.write("context")}
    forms = {"orchestrator": orchestrator_form, "context": context_form}
    configs = {name: {"for": name} for name in written}
    plan: dict[str, Any] = {"session": {}}
    for name, module in written.items():
        if forms[name] == "mapping":
            plan["session"][name] = module.entry(source=f"source of {name}", config=configs[name])
        else:
            plan["session"][name] = module.module_id
            plan["session"][f"{name}_source"] = f"source of {name}"
            plan[name] = {"config": configs[name]}

    await modules.session(plan).initialize()

    for name, module in written.items():
        assert module.code.mounts[0] is configs[name]
        source = f"source of {name}"
        assert (module.module_id, source, source) in modules.resolver.calls


async def test_the_section_beside_a_mapping_is_not_read(modules: Any) -> None:
    orchestrator = modules.write("orchestrator")
    plan = {
        "session": {
            "orchestrator": orchestrator.entry(),
            "context": modules.write("context").entry(),
            "orchestrator_source": "for the string form",
        },
        "orchestrator": {"config": {"for": "the string form"}},
        "context": "not even a dict",
    }

    await modules.session(plan).initialize()

    assert orchestrator.code.mounts == [{}]
    assert (orchestrator.module_id, None, None) in modules.resolver.calls


@pytest.mark.parametrize(("name", "default"), [("orchestrator", "loop-basic"), ("context", "context-simple")])
async def test_a_mapping_without_a_module_means_the_default_module(modules: Any, name: str, default: str) -> None:
    written = modules.write(name, module_id=default)
    plan = modules.plan()
    plan["session"][name] = {"config": {"a": 1}}

    await modules.session(plan).initialize()

    assert written.code.mounts == [{"a": 1}]


@pytest.mark.parametrize(("name", "default"), [("orchestrator", "loop-basic"), ("context", "context-simple")])
async def test_a_part_taken_out_of_the_plan_after_construction_means_the_default_module(
    modules: Any, name: str, default: str
) -> None:
    written = modules.write(name, module_id=default)
    session = modules.session()

    del session.config["session"][name]
    await session.initialize()

    assert written.times_mounted == 1


async def test_sources_of_every_section_reach_the_resolver_as_they_are(modules: Any) -> None:
    source = {"any": "object"}
    plan = modules.plan(tools=[modules.write("tool").entry(source=source)], hooks=[modules.write("hook").entry()])
    plan["providers"][0]["source"] = "git+https://host/provider"

    assert await modules.failures_of(modules.session(plan)) == []

    hints = {module_id: (hint, other) for module_id, hint, other in modules.resolver.calls}
    tool_hints = hints[plan["tools"][0]["module"]]
    assert tool_hints[0] is tool_hints[1] is source
    assert hints[plan["providers"][0]["module"]] == ("git+https://host/provider", "git+https://host/provider")
    assert hints[plan["hooks"][0]["module"]] == (None, None)


async def test_every_module_gets_the_very_config_of_the_plan(modules: Any) -> None:
    written = {kind: modules.write(kind) for kind in ("provider", "tool", "hook")}
    configs = {kind: {"live": object()} for kind in written}
    plan = modules.plan(**{f"{kind}s": [module.entry(config=configs[kind])] for kind, module in written.items()})

    assert await modules.failures_of(modules.session(plan)) == []

    for kind, module in written.items():
        assert module.code.mounts[0] is configs[kind]


@pytest.mark.parametrize("falsy", [None, {}, [], "", 0, False])
async def test_a_falsy_config_becomes_a_fresh_dict(modules: Any, falsy: Any) -> None:
    tools = [modules.write("tool"), modules.write("tool")]
    plan = modules.plan(tools=[tool.entry(config=falsy) for tool in tools])

    assert await modules.failures_of(modules.session(plan)) == []

    given = [tool.code.mounts[0] for tool in tools]
    assert given == [{}, {}]
    assert given[0] is not given[1]
    assert given[0] is not falsy


async def test_a_loader_of_the_application_is_called_in_the_documented_way() -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    config = {"a": 1}

    class Recording:
        async def load(self, *arguments: Any, **keywords: Any) -> Any:
            calls.append((arguments, keywords))
            module_id = arguments[0]

            async def mount(coordinator: ModuleCoordinator) -> None:
                await coordinator.mount(module_id if module_id != "p" else "providers", object(), name="p")

            return mount

        def get_on_session_ready_queue(self) -> list[Any]:
            return []

        def clear_on_session_ready_queue(self) -> None:
            pass

    plan = {
        "session": {"orchestrator": {"module": "orchestrator", "source": "s", "config": config}, "context": "context"},
        "providers": [{"module": "p"}],
    }
    session = AmplifierSession(plan, loader=Recording())  # type: ignore[arg-type]
    await session.initialize()

    coordinator = session.coordinator
    assert calls == [
        (("orchestrator", config), {"source_hint": "s", "coordinator": coordinator}),
        (("context", {}), {"source_hint": None, "coordinator": coordinator}),
        (("p", {}), {"source_hint": None, "coordinator": coordinator}),
    ]
    assert calls[0][0][1] is config


@pytest.mark.parametrize("section", ["providers", "tools", "hooks"])
@pytest.mark.parametrize("entry", [{}, {"module": None}, {"module": ""}, {"module": 0}, {"config": {"a": 1}}], ids=repr)
async def test_an_entry_that_names_no_module_is_skipped_with_a_warning(
    modules: Any, caplog: pytest.LogCaptureFixture, section: str, entry: dict[str, Any]
) -> None:
    plan = modules.plan()
    plan[section] = [modules.write(section.removesuffix("s")).entry(), entry]

    assert await modules.failures_of(modules.session(plan)) == []

    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [f"{section}[1]" in record.getMessage() for record in warnings] == [True]


async def test_agents_and_unknown_sections_are_never_interpreted(modules: Any) -> None:
    plan = modules.plan(agents=[{"module": "no-such"}, 7], extra={"tools": [{"module": "no-such"}]})

    assert await modules.failures_of(modules.session(plan)) == []


# The shape of the plan


WRONG_SHAPES: list[tuple[dict[str, Any], str]] = [
    ({"providers": None}, "providers must be a list, got NoneType"),
    ({"providers": {}}, "providers must be a list, got dict"),
    ({"tools": "tool-x"}, "tools must be a list, got str"),
    ({"hooks": ()}, "hooks must be a list, got tuple"),
    ({"providers": [None]}, "providers[0] must be a dict, got NoneType"),
    ({"tools": [{"module": "a"}, {"module": "b"}, "tool-x"]}, "tools[2] must be a dict, got str"),
    ({"hooks": [[]]}, "hooks[0] must be a dict, got list"),
    ({"providers": [{"module": 7}]}, "providers[0].module must be a string, got int"),
    ({"tools": [{}, {"module": ["x"]}]}, "tools[1].module must be a string, got list"),
    ({"hooks": [{"module": {"x": 1}}]}, "hooks[0].module must be a string, got dict"),
    ({"providers": [{"module": "p", "instance_id": 7}]}, "providers[0].instance_id must be a string, got int"),
    ({"orchestrator": "x"}, "orchestrator must be a dict, got str"),
    ({"context": None}, "context must be a dict, got NoneType"),
    ({"session": {"orchestrator": 7}}, "session.orchestrator must be a string or a dict, got int"),
    ({"session": {"context": ["x"]}}, "session.context must be a string or a dict, got list"),
    ({"session": {"orchestrator": {"module": 7}}}, "session.orchestrator.module must be a string, got int"),
    ({"session": {"context": {"module": b"x"}}}, "session.context.module must be a string, got bytes"),
]


@pytest.mark.parametrize(("change", "message"), WRONG_SHAPES, ids=[message for _, message in WRONG_SHAPES])
async def test_a_plan_of_the_wrong_shape_is_refused_before_anything_is_loaded(
    modules: Any, change: dict[str, Any], message: str
) -> None:
    plan = modules.plan()
    session_section = {**plan["session"], **change.get("session", {})}
    session = modules.session({**plan, **change, "session": session_section})

    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the text is compared as a whole
        await session.initialize()

    assert str(refusal.value) == message
    assert modules.resolver.calls == []
    assert not session.initialized


async def test_an_entry_wins_over_the_section_beside_it_and_that_is_said(
    modules: Any, caplog: pytest.LogCaptureFixture
) -> None:
    plan = modules.plan()
    plan["session"]["orchestrator"] = MountPlan(plan).by_entry()["session"]["orchestrator"]
    session = modules.session({**plan, "orchestrator": {"config": {"unread": True}}})

    async with session:
        assert "orchestrator is not read, because session.orchestrator is an entry" in caplog.text


@pytest.mark.parametrize("session_section", [None, [], "x", 7])
async def test_a_session_section_that_was_broken_after_construction_is_refused(
    modules: Any, session_section: Any
) -> None:
    session = modules.session()
    session.config["session"] = session_section

    with pytest.raises(ValueError, match=r"^session must be a dict, got "):
        await session.initialize()


async def test_a_session_section_that_was_removed_after_construction_means_the_default_modules(modules: Any) -> None:
    orchestrator = modules.write("orchestrator", module_id="loop-basic")
    modules.write("context", module_id="context-simple")
    session = modules.session()
    del session.config["session"]

    async with session:
        assert await session.execute("hello") == "answer to hello"

    assert orchestrator.times_mounted == 1


@pytest.mark.parametrize("config", ["text", ["a"], 7, True])
async def test_a_config_that_is_no_dict_is_a_failure_of_that_module(modules: Any, config: Any) -> None:
    tool = modules.write("tool")
    plan = modules.plan(tools=[tool.entry(config=config)])

    failures = await modules.failures_of(modules.session(plan))

    assert [failure["error"] for failure in failures] == [
        f"tools[0].config must be a dict, got {type(config).__name__}"
    ]
    assert tool.times_mounted == 0


async def test_a_config_that_is_no_dict_is_fatal_for_the_orchestrator(modules: Any) -> None:
    plan = modules.plan(orchestrator={"config": "text"})

    with pytest.raises(
        RuntimeError, match=r"^Cannot initialize without orchestrator: orchestrator\.config must be a dict, got str$"
    ):
        await modules.session(plan).initialize()


# Ready


READY = """
    async def on_session_ready(coordinator):
        state = coordinator.session_state
        state.setdefault("told", []).append((NAME, sorted(coordinator.get("tools")), "fork" in state))
"""


async def test_modules_are_told_when_all_are_mounted_in_loading_order_before_the_fork(modules: Any) -> None:
    provider, tool, hook = (modules.write(kind, tail=READY) for kind in ("provider", "tool", "hook"))
    orchestrator, context = modules.write("orchestrator", tail=READY), modules.write("context", tail=READY)
    plan = {
        "session": {"orchestrator": orchestrator.module_id, "context": context.module_id},
        "providers": [provider.entry()],
        "tools": [tool.entry()],
        "hooks": [hook.entry()],
    }
    session = modules.session(plan, parent_id="parent")
    state = session.coordinator.session_state
    session.coordinator.hooks.register("session:fork", lambda event, data: state.update(fork=True))

    assert await modules.failures_of(session) == []

    everything = (orchestrator, context, provider, tool, hook)
    assert state["told"] == [(module.name, [tool.name], False) for module in everything]
    assert state["fork"]
    assert session.loader is not None
    assert session.loader.get_on_session_ready_queue() == []


async def test_every_instance_of_a_module_is_told(modules: Any) -> None:
    provider = modules.write("provider", tail=READY)
    session = modules.session(modules.plan(providers=[provider.entry(), provider.entry(instance_id="b")]))

    await session.initialize()

    assert len(session.coordinator.session_state["told"]) == 2


async def test_a_module_that_fails_when_told_is_announced_and_the_others_are_told(
    modules: Any, listen: Listen, caplog: pytest.LogCaptureFixture
) -> None:
    bad = modules.write("tool", tail='async def on_session_ready(coordinator):\n    raise OSError("not ready")')
    good = modules.write("tool", tail=READY)
    session = modules.session(modules.plan(tools=[bad.entry(), good.entry()]))
    session.coordinator.hooks.set_default_fields()
    heard = listen(session.coordinator, "module:on_session_ready_failed")

    await session.initialize()

    assert session.initialized
    assert [name for name, *_ in session.coordinator.session_state["told"]] == [good.name]
    assert [{key: data[key] for key in data if key != "timestamp"} for _, data in heard] == [
        {"module_id": bad.module_id, "error": "not ready"}
    ]
    text = f"on_session_ready for '{bad.module_id}' raised: not ready"
    assert [record.levelno for record in caplog.records if record.getMessage() == text] == [logging.WARNING]
    assert session.status.load_failures == []


async def test_handlers_registered_when_told_hear_the_first_event(modules: Any) -> None:
    hook = modules.write(
        "hook",
        mount="return None",
        tail="""
            async def on_session_ready(coordinator):
                def note(event, data):
                    coordinator.session_state[event] = True

                coordinator.hooks.register("session:start", note)
        """,
    )
    session = modules.session(modules.plan(hooks=[hook.entry()]))

    async with session:
        await session.execute("hello")

    assert session.coordinator.session_state["session:start"]


async def test_a_second_attempt_tells_every_module_once(modules: Any) -> None:
    plan = modules.plan(tools=[modules.write("tool", tail=READY).entry()])
    provider = plan["providers"][0]["module"]
    plan["session"]["context"] = modules.write("context", tail=READY).module_id
    plan["providers"] = [{"module": provider}, {"module": provider}]
    session = modules.session(plan)

    with pytest.raises(ValueError, match="Multi-instance"):
        await session.initialize()
    plan["providers"].pop()
    await session.initialize()

    assert len(session.coordinator.session_state["told"]) == 2


class Settings(BaseModel):
    key: str = "k"


@pytest.mark.parametrize(
    "settings",
    [Settings(), SimpleNamespace(key="k"), MappingProxyType({"key": "k"})],
    ids=["model", "namespace", "mapping"],
)
async def test_settings_may_be_an_object_with_attributes(modules: Any, settings: Any) -> None:
    tool = modules.write("tool")
    session = modules.session(modules.plan(tools=[tool.entry(config=settings)]))

    assert await modules.failures_of(session) == []
    assert tool.code.mounts == [settings]


@pytest.mark.parametrize("settings", ["text", ["a"], 7, {"a"}, ("a",)], ids=repr)
async def test_settings_that_nobody_could_read_are_refused(modules: Any, settings: Any) -> None:
    tool = modules.write("tool")
    session = modules.session(modules.plan(tools=[tool.entry(config=settings)]))

    (failure,) = await modules.failures_of(session)
    assert f"tools[0].config must be a dict, got {type(settings).__name__}" in failure["error"]


@pytest.mark.parametrize("form", [list, tuple, deque])
async def test_the_callbacks_of_a_loader_may_come_as_any_sequence(loader_for: Any, form: Any) -> None:
    told: list[Any] = []

    async def ready(coordinator: ModuleCoordinator) -> None:
        told.append(coordinator)

    loader = loader_for()
    loader.get_on_session_ready_queue = lambda: form([("tool-x", ready)])
    plan = {"session": {"orchestrator": "loop-x", "context": "context-x"}, "providers": [{"module": "provider-x"}]}
    session = AmplifierSession(plan, loader=loader)
    await session.initialize()

    assert told == [session.coordinator]


def test_parameters_have_the_names_that_callers_use(tmp_path: Path) -> None:
    token, loader, coordinator = CancellationToken(), ModuleLoader(), ModuleCoordinator()
    (tmp_path / "kernel_test_names.py").write_text("x = 1")

    coordinator.register_cleanup(cleanup_fn=print)
    token.register_child(child=CancellationToken())
    token.unregister_child(child=CancellationToken())
    loader.enqueue_on_session_ready(module_id="tool-x", fn=print)  # type: ignore[arg-type]

    assert import_module_from_path(module_path=tmp_path / "kernel_test_names.py").x == 1
    del sys.modules["kernel_test_names"]
