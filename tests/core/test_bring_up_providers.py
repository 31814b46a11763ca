"""Providers: several instances of one module, rollback, and the application's say."""

import copy
import sys
from typing import Any

import pytest

from amplifier_core import AmplifierSession, ModuleCoordinator


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

    assert await modules.failures_of(session) == []

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

    assert await modules.failures_of(session) == []

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

    assert await modules.failures_of(session) == []

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

    assert await modules.failures_of(session) == []

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

    assert await modules.failures_of(session) == []

    assert [call[:2] for call in coordinator.calls] == [("mount", provider.name)]


async def test_a_named_instance_may_not_hide_under_another_name(modules: Any) -> None:
    provider = modules.write("provider", mount='await coordinator.mount("providers", thing, name="elsewhere")')
    session, coordinator = tracked(modules, [provider.entry(instance_id="mine")])

    failures = await modules.failures_of(session)

    assert [failure["error"] for failure in failures] == [
        "Named provider mount did not install a new instance at its default mount name"
    ]
    assert coordinator.get("providers") == {}


@pytest.mark.parametrize("mount", ["return None", "return lambda: None"])
async def test_a_provider_that_declines_is_a_failure_and_the_session_goes_on(modules: Any, mount: str) -> None:
    provider, other = modules.write("provider", mount=mount), modules.write("provider")
    session = modules.session(modules.plan(providers=[provider.entry(), other.entry()]))

    failures = await modules.failures_of(session)

    assert [failure["error"] for failure in failures] == ["Provider mount did not install a new provider instance"]
    assert list(session.coordinator.get("providers")) == [other.name]
    assert str(provider.folder) not in sys.path


@pytest.mark.parametrize(
    "mount",
    [
        'coordinator.mount_points["providers"] = {**coordinator.get("providers"), thing.name: thing}',
        """
        import asyncio, contextvars
        mounting = coordinator.mount("providers", thing)
        await asyncio.get_running_loop().create_task(mounting, context=contextvars.Context())
        """,
    ],
    ids=["another dict", "another context"],
)
@pytest.mark.parametrize("instance_id", [None, "mine"])
async def test_a_provider_is_found_whatever_way_it_was_mounted(
    modules: Any, mount: str, instance_id: str | None
) -> None:
    provider = modules.write("provider", mount=mount)
    session = modules.session(modules.plan(providers=[provider.entry(instance_id=instance_id)]))

    assert await modules.failures_of(session) == []

    assert list(session.coordinator.get("providers")) == [instance_id or provider.name]


async def test_a_provider_that_the_application_mounts_before_loading_counts(modules: Any) -> None:
    provider = modules.write("provider", mount="return None")
    session = modules.session(modules.plan(providers=[provider.entry()]))

    async def before_load(coordinator: ModuleCoordinator, entry: dict[str, Any]) -> None:
        await coordinator.mount("providers", object(), name="ready-made")

    session.coordinator.register_capability("provider.before_load", before_load)

    assert await modules.failures_of(session) == []


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

    failures = await modules.failures_of(session)

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
    failures = await modules.failures_of(session)

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
