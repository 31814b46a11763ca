"""Bringing a session up: what is loaded in which order, with what, and what happens when something fails."""

import copy
import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest

from amplifier_core import AmplifierSession, ModuleCoordinator

Listen = Callable[..., list[tuple[str, dict[str, Any]]]]

NOTES_ITSELF = 'coordinator.session_state.setdefault("mounted", []).append(NAME)\n'


def mounting(point: str, extra: str = "") -> str:
    """Return the body of a mount function that notes its name in the session's state."""
    return f'{NOTES_ITSELF}await coordinator.mount("{point}", thing, name=NAME)\n{extra}'


async def failures_of(session: AmplifierSession) -> list[dict[str, Any]]:
    await session.initialize()
    return session.status.load_failures


# Order and forms of the plan


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

    assert await failures_of(modules.session(plan)) == []

    hints = {module_id: (hint, other) for module_id, hint, other in modules.resolver.calls}
    tool_hints = hints[plan["tools"][0]["module"]]
    assert tool_hints[0] is tool_hints[1] is source
    assert hints[plan["providers"][0]["module"]] == ("git+https://host/provider", "git+https://host/provider")
    assert hints[plan["hooks"][0]["module"]] == (None, None)


async def test_every_module_gets_the_very_config_of_the_plan(modules: Any) -> None:
    written = {kind: modules.write(kind) for kind in ("provider", "tool", "hook")}
    configs = {kind: {"live": object()} for kind in written}
    plan = modules.plan(**{f"{kind}s": [module.entry(config=configs[kind])] for kind, module in written.items()})

    assert await failures_of(modules.session(plan)) == []

    for kind, module in written.items():
        assert module.code.mounts[0] is configs[kind]


@pytest.mark.parametrize("falsy", [None, {}, [], "", 0, False])
async def test_a_falsy_config_becomes_a_fresh_dict(modules: Any, falsy: Any) -> None:
    tools = [modules.write("tool"), modules.write("tool")]
    plan = modules.plan(tools=[tool.entry(config=falsy) for tool in tools])

    assert await failures_of(modules.session(plan)) == []

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

    assert await failures_of(modules.session(plan)) == []

    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [f"{section}[1]" in record.getMessage() for record in warnings] == [True]


async def test_agents_and_unknown_sections_are_never_interpreted(modules: Any) -> None:
    plan = modules.plan(agents=[{"module": "no-such"}, 7], extra={"tools": [{"module": "no-such"}]})

    assert await failures_of(modules.session(plan)) == []


# Shape


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

    failures = await failures_of(modules.session(plan))

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


# What is fatal


@pytest.mark.parametrize(("name", "title"), [("orchestrator", "orchestrator"), ("context", "context manager")])
@pytest.mark.parametrize("mount", ["raise OSError('no disk')", "return None", "await coordinator.mount('tools', 1)"])
async def test_a_session_cannot_do_without_orchestrator_and_context(
    modules: Any, name: str, title: str, mount: str
) -> None:
    plan = modules.plan()
    plan["session"][name] = modules.write(name, mount=mount).module_id
    session = modules.session(plan)

    with pytest.raises(RuntimeError) as failure:
        await session.initialize()

    assert str(failure.value).startswith(f"Cannot initialize without {title}: ")
    assert isinstance(failure.value.__cause__, Exception)
    assert session.coordinator.get(name) is None
    assert session.status.load_failures == []


@pytest.mark.parametrize(("name", "title"), [("orchestrator", "orchestrator"), ("context", "context manager")])
async def test_an_undecodable_reason_is_told_by_its_representation(modules: Any, name: str, title: str) -> None:
    plan = modules.plan()
    head = """
        class Undecodable(Exception):
            def __str__(self):
                return b"\\xff".decode()
    """
    plan["session"][name] = modules.write(name, head=head, mount="raise Undecodable(1)").module_id

    with pytest.raises(RuntimeError) as failure:
        await modules.session(plan).initialize()

    assert str(failure.value) == f"Cannot initialize without {title}: Undecodable(1)"


async def test_an_interruption_of_a_mount_is_not_mistaken_for_a_failure(modules: Any) -> None:
    tool = modules.write("tool", mount='await coordinator.mount("tools", thing)\nraise KeyboardInterrupt')
    session = modules.session(modules.plan(tools=[tool.entry()]))

    with pytest.raises(KeyboardInterrupt):
        await session.initialize()

    assert session.coordinator.get("tools") == {}
    assert session.status.load_failures == []


# What is skipped


@pytest.mark.parametrize("kind", ["provider", "tool", "hook"])
async def test_a_module_that_fails_is_skipped_warned_about_announced_and_kept_in_the_status(
    modules: Any, listen: Listen, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    good = [modules.write(kind), modules.write(kind)]
    bad = modules.write(kind, mount='raise OSError("no disk")')
    plan = modules.plan()
    plan[f"{kind}s"] = [module.entry() for module in (good[0], bad, good[1])]
    session = modules.session(plan)
    session.coordinator.hooks.set_default_fields()
    heard = listen(session.coordinator, "module:load_failed")

    await session.initialize()

    expected = {"module_type": kind, "module_id": bad.module_id, "error": "no disk", "reason_code": "unknown"}
    assert session.status.load_failures == [expected]
    assert [{key: data[key] for key in data if key != "timestamp"} for _, data in heard] == [expected]
    assert [module.times_mounted for module in good] == [1, 1]
    text = f"Failed to load {kind} '{bad.module_id}': no disk"
    records = [record for record in caplog.records if record.getMessage() == text]
    assert [(record.levelno, bool(record.exc_info)) for record in records] == [(logging.WARNING, True)]
    assert session.initialized


async def test_a_failed_instance_is_named_in_its_failure(modules: Any) -> None:
    bad = modules.write("provider", mount='raise OSError("no disk")')
    plan = modules.plan(providers=[bad.entry(instance_id="second"), bad.entry(instance_id="")])

    failures = await failures_of(modules.session(plan))

    assert [failure.get("instance_id") for failure in failures] == ["second", None]
    assert "instance_id" not in failures[1]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"mount": "return None"}, "validation_failed"),
        ({"source": "def mount(coordinator, config): ..."}, "invalid_entry_point"),
        ({"head": "__amplifier_module_type__ = 'gadget'"}, "invalid_module_metadata"),
        ({"mount": "raise LookupError"}, "unknown"),
    ],
)
async def test_a_failure_carries_its_reason_code(modules: Any, broken: dict[str, str], reason: str) -> None:
    plan = modules.plan(tools=[modules.write("tool", **broken).entry()])

    failures = await failures_of(modules.session(plan))

    assert [failure["reason_code"] for failure in failures] == [reason]


async def test_a_module_that_nobody_knows_is_a_missing_source(modules: Any) -> None:
    failures = await failures_of(modules.session(modules.plan(tools=[{"module": "tool-nobody-wrote"}])))

    assert [(failure["module_id"], failure["reason_code"]) for failure in failures] == [
        ("tool-nobody-wrote", "missing_source")
    ]


async def test_failures_stand_in_the_status_in_the_order_of_the_plan_and_in_the_final_event(
    modules: Any, listen: Listen
) -> None:
    bad = [modules.write(kind, mount="raise OSError(NAME)") for kind in ("provider", "tool", "hook")]
    plan = modules.plan(tools=[bad[1].entry()], hooks=[bad[2].entry()])
    plan["providers"].append(bad[0].entry())
    session = modules.session(plan)
    heard = listen(session.coordinator, "session:end")

    await session.initialize()
    await session.cleanup()

    assert [failure["module_type"] for failure in session.status.load_failures] == ["provider", "tool", "hook"]
    assert heard[0][1]["stats"]["load_failures"] == session.status.load_failures


async def test_a_failure_that_cannot_be_announced_is_skipped_all_the_same(modules: Any) -> None:
    session = modules.session(modules.plan(tools=[{"module": "tool-nobody-wrote"}]))

    async def broken_emit(event: str, data: dict[str, Any]) -> Any:
        raise ConnectionError("no one listens")

    session.coordinator.hooks.emit = broken_emit
    await session.initialize()

    assert len(session.status.load_failures) == 1


async def test_a_denial_of_the_announcement_changes_nothing(modules: Any) -> None:
    session = modules.session(modules.plan(tools=[{"module": "tool-nobody-wrote"}]))
    session.coordinator.hooks.register("module:load_failed", lambda event, data: {"action": "deny"})

    await session.initialize()

    assert len(session.status.load_failures) == 1


# A failed module leaves nothing behind


@pytest.mark.parametrize("kind", ["orchestrator", "context", "provider", "tool", "hook"])
@pytest.mark.parametrize("after_mounting", ["raise OSError('half-way')", "return None"])
async def test_a_module_that_fails_after_mounting_takes_everything_back(
    modules: Any, kind: str, after_mounting: str
) -> None:
    if after_mounting == "return None" and kind == "hook":
        after_mounting = "raise LookupError"  # whatever a hook registers, it is a hook
    bad = modules.write(
        kind,
        definition="class Thing:\n    name = NAME\n",
        mount=f"""
            await coordinator.mount("orchestrator", thing)
            await coordinator.mount("context", thing)
            await coordinator.mount("providers", thing, name="theirs")
            await coordinator.mount("tools", thing, name="theirs")
            await coordinator.mount("tools", thing, name="ours")
            coordinator.hooks.register("tool:pre", print, name="theirs")
            coordinator.register_capability("theirs", thing)
            coordinator.register_capability("ours", thing)
            coordinator.register_contributor("theirs", NAME, print)
            coordinator.register_contributor("ours", NAME, print)
            coordinator.register_cleanup(lambda: config["cleanups"].append("registered"))
            {after_mounting}
        """,
    )
    cleanups: list[str] = []
    entry = bad.entry(config={"cleanups": cleanups})
    plan = modules.plan()
    if kind in plan["session"]:
        plan["session"][kind] = entry
    else:
        plan.setdefault(f"{kind}s", []).append(entry)
    session = modules.session(plan)
    coordinator = session.coordinator
    ours = object()
    await coordinator.mount("tools", ours, name="ours")
    coordinator.register_capability("ours", ours)
    coordinator.register_contributor("ours", "ours", print)
    coordinator.register_cleanup(lambda: cleanups.append("ours"))

    try:
        await session.initialize()
    except RuntimeError:
        assert kind in plan["session"]
        assert coordinator.get(kind) is None

    things = [coordinator.get(point) for point in ("orchestrator", "context")]
    things += [*coordinator.get("providers").values(), *coordinator.get("tools").values()]
    assert not any(type(thing).__module__ == bad.package for thing in things)
    assert coordinator.get("tools") == {"ours": ours}
    assert coordinator.get_capability("theirs") is None
    assert coordinator.get_capability("ours") is ours
    assert {channel: len(callbacks) for channel, callbacks in coordinator.channels.items()} == {"ours": 1}
    assert not coordinator.hooks.has_handlers("tool:pre")
    assert cleanups == ["registered"]
    assert str(bad.folder) not in sys.path


async def test_a_cleanup_that_a_failed_module_returned_runs_once(modules: Any) -> None:
    runs: list[str] = []
    tool = modules.write(
        "tool",
        mount="""
            await coordinator.mount("tools", object(), name="wrong")
            return lambda: config["runs"].append("returned")
        """,
    )
    session = modules.session(modules.plan(tools=[tool.entry(config={"runs": runs})]))

    assert len(await failures_of(session)) == 1
    assert runs == ["returned"]
    await session.cleanup()
    assert runs == ["returned"]


async def test_a_failed_module_is_not_told_that_the_session_is_ready(modules: Any) -> None:
    tail = """
        async def on_session_ready(coordinator):
            coordinator.session_state["told"] = NAME
    """
    tool = modules.write("tool", mount="raise OSError", tail=tail)
    session = modules.session(modules.plan(tools=[tool.entry()]))

    await session.initialize()

    assert "told" not in session.coordinator.session_state


# Providers


@pytest.mark.parametrize("unnamed", [{}, {"instance_id": None}, {"instance_id": ""}])
async def test_only_one_entry_of_a_provider_may_go_without_an_instance_id(
    modules: Any, unnamed: dict[str, Any]
) -> None:
    provider = modules.write("provider")
    plan = modules.plan(
        providers=[provider.entry(**unnamed), provider.entry(instance_id="b"), provider.entry(), provider.entry()]
    )
    session = modules.session(plan)

    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the text is compared as a whole
        await session.initialize()

    assert str(refusal.value) == (
        "Multi-instance providers require explicit 'instance_id' on each additional entry. "
        f"Found 3 entries for module '{provider.module_id}' without instance_id "
        "(at most 1 allowed as the default instance)."
    )
    assert session.coordinator.get("orchestrator") is not None
    assert session.coordinator.get("context") is not None
    assert provider.times_mounted == 0


async def test_one_unnamed_and_any_number_of_named_instances_mount_side_by_side(modules: Any) -> None:
    provider = modules.write("provider")
    entries = [provider.entry(), provider.entry(instance_id="b"), provider.entry(instance_id="c")]
    session = modules.session(modules.plan(providers=entries))

    assert await failures_of(session) == []

    mounted = session.coordinator.get("providers")
    assert list(mounted) == [provider.name, "b", "c"]
    assert len({id(instance) for instance in mounted.values()}) == 3
    assert provider.times_mounted == 3


async def test_instances_get_a_config_of_their_own(modules: Any) -> None:
    provider = modules.write(
        "provider", mount='thing.model = config["model"]\nawait coordinator.mount("providers", thing)'
    )
    entries = [provider.entry(instance_id=name, config={"model": name}) for name in ("a", "b")]
    session = modules.session(modules.plan(providers=entries))

    assert await failures_of(session) == []

    assert {name: instance.model for name, instance in session.coordinator.get("providers").items()} == {
        "a": "a",
        "b": "b",
    }


class Tracking(ModuleCoordinator):
    """Records every mount and unmount of a provider; `name` is the one asked for."""

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self.calls: list[tuple[str, str | None, Any]] = []

    async def mount(self, mount_point: str, module: Any, name: str | None = None) -> None:
        if mount_point == "providers":
            self.calls.append(("mount", name, module))
        await super().mount(mount_point, module, name)

    async def unmount(self, mount_point: str, name: str | None = None) -> None:
        if mount_point == "providers":
            self.calls.append(("unmount", name, None))
        await super().unmount(mount_point, name)


def tracked(modules: Any, entries: list[dict[str, Any]]) -> tuple[AmplifierSession, Tracking]:
    session = modules.session(modules.plan(providers=entries))
    coordinator = Tracking(session)
    coordinator.mount_points["module-source-resolver"] = modules.resolver
    session.coordinator = coordinator
    return session, coordinator


async def test_a_named_instance_moves_from_its_default_name_to_its_instance_id(modules: Any) -> None:
    provider = modules.write("provider")
    session, coordinator = tracked(modules, [provider.entry(instance_id="mine")])

    assert await failures_of(session) == []

    instance = coordinator.get("providers")["mine"]
    assert coordinator.get("providers") == {"mine": instance}
    assert coordinator.calls == [
        ("mount", provider.name, instance),
        ("mount", "mine", instance),
        ("unmount", provider.name, None),
    ]


async def test_a_named_instance_gives_the_default_name_back_to_its_previous_owner(modules: Any) -> None:
    provider = modules.write("provider")
    session, coordinator = tracked(modules, [provider.entry(), provider.entry(instance_id="mine")])

    assert await failures_of(session) == []

    first, second = coordinator.get("providers").values()
    assert list(coordinator.get("providers")) == [provider.name, "mine"]
    assert coordinator.calls == [
        ("mount", provider.name, first),
        ("mount", provider.name, second),
        ("mount", "mine", second),
        ("mount", provider.name, first),
    ]


async def test_an_instance_id_that_is_the_default_name_moves_nothing(modules: Any) -> None:
    provider = modules.write("provider")
    session, coordinator = tracked(modules, [provider.entry(instance_id=provider.name)])

    assert await failures_of(session) == []

    assert [call[:2] for call in coordinator.calls] == [("mount", provider.name)]


async def test_a_named_instance_may_not_hide_under_another_name(modules: Any) -> None:
    provider = modules.write("provider", mount='await coordinator.mount("providers", thing, name="elsewhere")')
    session, coordinator = tracked(modules, [provider.entry(instance_id="mine")])

    failures = await failures_of(session)

    assert [failure["error"] for failure in failures] == [
        "Named provider mount did not install a new instance at its default mount name"
    ]
    assert coordinator.get("providers") == {}


@pytest.mark.parametrize("mount", ["return None", "return lambda: None"])
async def test_a_provider_that_declines_is_a_failure_and_the_session_goes_on(modules: Any, mount: str) -> None:
    provider, other = modules.write("provider", mount=mount), modules.write("provider")
    session = modules.session(modules.plan(providers=[provider.entry(), other.entry()]))

    failures = await failures_of(session)

    assert [failure["error"] for failure in failures] == ["Provider mount did not install a new provider instance"]
    assert list(session.coordinator.get("providers")) == [other.name]
    assert str(provider.folder) not in sys.path


async def test_a_provider_that_only_mounts_what_was_there_before_is_a_failure(modules: Any) -> None:
    first = modules.write("provider")
    again = modules.write(
        "provider",
        mount="""
            for name, one in list(coordinator.get("providers").items()):
                await coordinator.mount("providers", one, name)
        """,
    )
    session = modules.session(modules.plan(providers=[first.entry(), again.entry()]))

    failures = await failures_of(session)

    assert [failure["module_id"] for failure in failures] == [again.module_id]


async def test_a_failed_provider_gives_the_providers_back_object_for_object_and_in_order(modules: Any) -> None:
    names = [modules.write("provider") for _ in range(3)]
    vandal = modules.write(
        "provider",
        mount="""
            names = list(coordinator.get("providers"))
            await coordinator.mount("providers", thing, name=names[0])
            await coordinator.unmount("providers", name=names[1])
            await coordinator.mount("providers", thing)
            raise OSError("no disk")
        """,
    )
    session = modules.session(modules.plan(providers=[module.entry() for module in names]))
    await session.initialize()
    before = dict(session.coordinator.get("providers"))
    live = session.coordinator.get("providers")
    await session.cleanup()
    session.config["providers"] = [vandal.entry()]

    await session.initialize()

    assert len(session.status.load_failures) == 1
    assert list(live.items()) == list(before.items())
    assert session.coordinator.get("providers") is live


async def test_the_application_is_asked_before_each_provider_is_loaded_and_may_refuse(modules: Any) -> None:
    wanted, refused = modules.write("provider"), modules.write("provider")
    config = {"key": {"nested": 1}}
    plan = modules.plan(providers=[wanted.entry(config=config), refused.entry(instance_id="b")])
    entries = copy.deepcopy(plan["providers"])
    session = modules.session(plan)
    asked: list[Any] = []

    async def before_load(coordinator: ModuleCoordinator, entry: dict[str, Any]) -> None:
        assert coordinator is session.coordinator
        asked.append(copy.deepcopy(entry))
        if entry["module"] == refused.module_id:
            raise PermissionError("not in this house")
        entry["config"]["key"]["nested"] = 2
        entry["module"] = "something-else"

    session.coordinator.register_capability("provider.before_load", before_load)
    failures = await failures_of(session)

    assert asked == entries
    assert wanted.code.mounts[0] is config
    assert config == {"key": {"nested": 1}}
    assert [(failure["module_id"], failure["error"]) for failure in failures] == [
        (refused.module_id, "not in this house")
    ]
    assert refused.times_mounted == 0


async def test_the_application_hears_of_each_failed_provider_after_the_rollback(modules: Any) -> None:
    bad = modules.write("provider", mount='await coordinator.mount("providers", thing)\nraise OSError("no disk")')
    good = modules.write("provider")
    plan = modules.plan(providers=[bad.entry(config={"a": [1]}), good.entry()])
    session = modules.session(plan)
    heard: list[Any] = []

    async def load_failure(coordinator: ModuleCoordinator, entry: dict[str, Any], error: Exception) -> None:
        heard.append((entry, str(error), dict(coordinator.get("providers")), len(session.status.load_failures)))
        entry["config"]["a"].append(2)

    session.coordinator.register_capability("provider.load_failure", load_failure)
    await session.initialize()

    assert heard == [(bad.entry(config={"a": [1, 2]}), "no disk", {}, 1)]
    assert plan["providers"][0] == bad.entry(config={"a": [1]})
    assert list(session.coordinator.get("providers")) == [good.name]


async def test_the_application_can_make_a_failed_provider_fatal(modules: Any) -> None:
    error = RuntimeError("no provider, no session")
    session = modules.session(modules.plan(providers=[{"module": "provider-nobody-wrote"}]))

    async def load_failure(coordinator: ModuleCoordinator, entry: dict[str, Any], failure: Exception) -> None:
        raise error

    session.coordinator.register_capability("provider.load_failure", load_failure)
    with pytest.raises(RuntimeError) as caught:
        await session.initialize()

    assert caught.value is error
    assert not session.initialized


async def test_the_application_is_not_asked_about_tools_and_hooks(modules: Any) -> None:
    plan = modules.plan(tools=[{"module": "tool-nobody-wrote"}], hooks=[{"module": "hooks-nobody-wrote"}])
    session = modules.session(plan)
    asked: list[str] = []

    async def note(coordinator: ModuleCoordinator, entry: dict[str, Any], *error: Exception) -> None:
        asked.append(entry["module"])

    session.coordinator.register_capability("provider.before_load", note)
    session.coordinator.register_capability("provider.load_failure", note)
    await session.initialize()

    assert asked == [plan["providers"][0]["module"]]


async def test_a_plan_with_values_that_cannot_be_copied_is_shown_to_the_application_too(modules: Any) -> None:
    module = type(sys)("not copyable")
    good, bad = modules.write("provider"), modules.write("provider", mount="raise OSError")
    plan = modules.plan(providers=[good.entry(config={"live": module}), bad.entry(config={"live": module})])
    session = modules.session(plan)
    seen: list[Any] = []

    async def note(coordinator: ModuleCoordinator, entry: dict[str, Any], *error: Exception) -> None:
        seen.append(entry["config"]["live"])
        entry["config"].clear()

    session.coordinator.register_capability("provider.before_load", note)
    session.coordinator.register_capability("provider.load_failure", note)
    await session.initialize()

    assert seen == [module] * 3
    assert good.code.mounts == [{"live": module}]


# What mount returns


@pytest.mark.parametrize("kind", ["orchestrator", "context", "provider", "tool"])
@pytest.mark.parametrize("way", ["resolver", "installed"])
async def test_an_instance_that_is_only_returned_is_mounted_once(modules: Any, kind: str, way: str) -> None:
    written = modules.write(kind, mount="thing.config = config\nreturn thing")
    if way == "installed":
        modules.install(written)
        del modules.resolver.folders[written.module_id]
    plan = modules.plan()
    config = {"a": 1}
    if kind in plan["session"]:
        plan["session"][kind] = written.entry(config=config)
    else:
        plan[f"{kind}s"] = [written.entry(config=config)]
    session = modules.session(plan)

    assert await failures_of(session) == []

    point = kind if kind in plan["session"] else f"{kind}s"
    mounted = session.coordinator.get(point)
    if isinstance(mounted, dict):
        assert list(mounted) == [written.name]
        mounted = mounted[written.name]
    assert mounted.config is config
    assert written.times_mounted == 1


async def test_a_returned_provider_can_be_a_named_instance(modules: Any) -> None:
    provider = modules.write("provider", mount="return thing")
    session = modules.session(modules.plan(providers=[provider.entry(), provider.entry(instance_id="b")]))

    assert await failures_of(session) == []

    assert list(session.coordinator.get("providers")) == [provider.name, "b"]


@pytest.mark.parametrize("kind", ["orchestrator", "context", "provider", "tool"])
async def test_an_instance_that_the_module_mounted_itself_is_neither_mounted_again_nor_called_at_the_end(
    modules: Any, kind: str
) -> None:
    head = "calls = []"
    point = {"provider": "providers", "tool": "tools"}.get(kind, kind)
    mount = f"""
        type(thing).__call__ = lambda self: calls.append("called")
        await coordinator.mount("{point}", thing, name="own-name")
        return thing
    """
    written = modules.write(kind, head=head, mount=mount)
    plan = modules.plan()
    if kind in plan["session"]:
        plan["session"][kind] = written.module_id
    else:
        plan[point] = [written.entry()]
    session = modules.session(plan)

    assert await failures_of(session) == []
    mounted = session.coordinator.get(point)
    assert mounted is not None
    assert list(mounted) == ["own-name"] if isinstance(mounted, dict) else True
    await session.cleanup()

    assert written.code.calls == []


@pytest.mark.parametrize("kind", ["orchestrator", "context", "provider", "tool", "hook"])
@pytest.mark.parametrize("form", ["lambda: calls.append(1)", "cleanup", "Closer()", "functools.partial(cleanup)"])
async def test_a_returned_callable_is_the_cleanup(modules: Any, kind: str, form: str) -> None:
    head = """
        import functools

        calls = []

        async def cleanup():
            calls.append(1)

        class Closer:
            async def __call__(self):
                calls.append(1)
    """
    point = {"provider": "providers", "tool": "tools"}.get(kind, kind)
    own = (
        'coordinator.hooks.register("tool:pre", thing)'
        if kind == "hook"
        else f'await coordinator.mount("{point}", thing, name=NAME)'
    )
    written = modules.write(kind, head=head, mount=f"{own}\nreturn {form}")
    plan = modules.plan()
    if kind in plan["session"]:
        plan["session"][kind] = written.module_id
    else:
        plan[f"{kind}s"] = [written.entry()]
    session = modules.session(plan)

    assert await failures_of(session) == []
    assert written.code.calls == []
    await session.cleanup()

    assert written.code.calls == [1]


@pytest.mark.parametrize("value", ["None", "{'name': 'x'}", "'text'", "[1]", "7", "object()"])
async def test_anything_else_that_mount_returns_is_ignored(modules: Any, value: str) -> None:
    tool = modules.write("tool", mount=f'await coordinator.mount("tools", thing)\nreturn {value}')
    session = modules.session(modules.plan(tools=[tool.entry()]))

    assert await failures_of(session) == []
    await session.cleanup()

    assert list(session.coordinator.get("tools")) == [tool.name]


async def test_a_tool_that_mounted_one_and_returned_another_keeps_the_one_it_mounted(modules: Any) -> None:
    mount = 'await coordinator.mount("tools", thing)\nother = Thing()\nother.name = "other"\nreturn other'
    tool = modules.write("tool", mount=mount)
    session = modules.session(modules.plan(tools=[tool.entry()]))

    assert await failures_of(session) == []

    assert list(session.coordinator.get("tools")) == [tool.name]


async def test_what_a_hook_module_returns_is_never_mounted(modules: Any) -> None:
    definition = """
        class Thing:
            name = NAME
            description = "looks like a tool"

            async def execute(self, input):
                return None
    """
    hook = modules.write("hook", definition=definition, mount="return thing")
    session = modules.session(modules.plan(hooks=[hook.entry()]))

    assert await failures_of(session) == []

    assert session.coordinator.get("tools") == {}


async def test_an_incomplete_instance_of_an_installed_module_is_not_mounted(modules: Any) -> None:
    provider = modules.write("provider", definition="class Thing:\n    name = NAME\n", mount="return thing")
    modules.install(provider)
    del modules.resolver.folders[provider.module_id]

    failures = await failures_of(modules.session(modules.plan(providers=[provider.entry()])))

    assert [failure["error"] for failure in failures] == ["Provider mount did not install a new provider instance"]


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

    assert await failures_of(session) == []

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
