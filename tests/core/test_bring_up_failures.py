"""Modules that fail: which are fatal, which are skipped, and that nothing of them stays."""

import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest

Listen = Callable[..., list[tuple[str, dict[str, Any]]]]


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

    failures = await modules.failures_of(modules.session(plan))

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

    failures = await modules.failures_of(modules.session(plan))

    assert [failure["reason_code"] for failure in failures] == [reason]


async def test_a_module_that_nobody_knows_is_a_missing_source(modules: Any) -> None:
    failures = await modules.failures_of(modules.session(modules.plan(tools=[{"module": "tool-nobody-wrote"}])))

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


# What stays of a failed module


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

    assert len(await modules.failures_of(session)) == 1
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
