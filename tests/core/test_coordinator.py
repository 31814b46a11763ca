"""One session's switchboard: mount points, capabilities, cancellation, and a summary of them."""

from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from amplifier_core import coordinator as coordinator_module
from amplifier_core.cancellation import CancellationToken
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.hooks import HookRegistry

SLOTS = ["orchestrator", "context", "module-source-resolver"]
COLLECTIONS = ["providers", "tools"]


@pytest.fixture
def coordinator() -> ModuleCoordinator:
    return ModuleCoordinator()


def named(name: Any) -> SimpleNamespace:
    return SimpleNamespace(name=name)


def test_the_module_offers_the_coordinator_only() -> None:
    assert coordinator_module.__all__ == ["ModuleCoordinator"]


def test_a_coordinator_can_do_without_a_session(coordinator: ModuleCoordinator) -> None:
    assert (coordinator.session, coordinator.session_id, coordinator.parent_id) == (None, "", None)
    assert coordinator.config == {}
    assert (coordinator.approval_system, coordinator.display_system, coordinator.loader) == (None, None, None)
    assert (coordinator.channels, coordinator.session_state) == ({}, {})


def test_a_coordinator_takes_over_what_the_session_has() -> None:
    session = SimpleNamespace(session_id="s-1", parent_id="s-0", config={"session": {}})
    approvals, display = object(), object()

    coordinator = ModuleCoordinator(session, approvals, display)

    assert coordinator.session is session
    assert (coordinator.session_id, coordinator.parent_id) == ("s-1", "s-0")
    assert coordinator.config is session.config
    assert coordinator.approval_system is approvals
    assert coordinator.display_system is display


@pytest.mark.parametrize("missing", ["session_id", "parent_id", "config"])
def test_a_session_without_a_needed_attribute_is_refused(missing: str) -> None:
    session = SimpleNamespace(session_id="s-1", parent_id=None, config={})
    delattr(session, missing)

    with pytest.raises(AttributeError, match=missing):
        ModuleCoordinator(session=session)


def test_two_coordinators_share_nothing() -> None:
    first, second = ModuleCoordinator(), ModuleCoordinator()
    first.session_state["n"] = 1
    first.config["n"] = 1
    first.mount_points["tools"]["t"] = object()
    first.register_capability("c", 1)

    assert (second.session_state, second.config, second.get("tools")) == ({}, {}, {})
    assert second.get_capability("c") is None
    assert first.hooks is not second.hooks
    assert first.cancellation is not second.cancellation


def test_the_mount_points_are_these_in_this_order(coordinator: ModuleCoordinator) -> None:
    assert list(coordinator.mount_points.items()) == [
        ("orchestrator", None),
        ("providers", {}),
        ("tools", {}),
        ("context", None),
        ("hooks", coordinator.hooks),
        ("module-source-resolver", None),
    ]
    assert isinstance(coordinator.hooks, HookRegistry)
    assert isinstance(coordinator.cancellation, CancellationToken)


async def test_mount_points_can_be_changed_from_outside(coordinator: ModuleCoordinator) -> None:
    tool, registry = object(), HookRegistry()
    coordinator.mount_points["tools"]["echo"] = tool
    assert coordinator.get("tools", "echo") is tool
    assert coordinator.get_mounted("tools") == coordinator.to_dict()["tools"] == ["echo"]
    coordinator.mount_points["hooks"] = registry
    assert coordinator.hooks is coordinator.get("hooks") is registry

    replaced = {**ModuleCoordinator().mount_points, "context": tool}
    coordinator.mount_points = replaced

    assert coordinator.get("context") is tool
    assert coordinator.hooks is replaced["hooks"]
    await coordinator.mount("tools", tool, name="other")
    assert replaced["tools"] == {"other": tool}


@pytest.mark.parametrize("attribute", ["loader", "approval_system", "display_system", "session_state", "todo_state"])
def test_attributes_can_be_set(coordinator: ModuleCoordinator, attribute: str) -> None:
    value = object()

    setattr(coordinator, attribute, value)

    assert getattr(coordinator, attribute) is value


@pytest.mark.parametrize(
    "attribute", ["parent", "capabilities", "todo_state", "session_dir", "_tool_dispatch_contexts"]
)
def test_attributes_nobody_set_are_not_there(coordinator: ModuleCoordinator, attribute: str) -> None:
    assert not hasattr(coordinator, attribute)


def test_coordinator_registry_and_token_are_truthy(coordinator: ModuleCoordinator) -> None:
    assert coordinator
    assert coordinator.hooks
    assert coordinator.cancellation


def test_a_subclass_may_have_another_constructor() -> None:
    class Tracking(ModuleCoordinator):
        def __init__(self, label: str, *, session_id: str) -> None:
            super().__init__(SimpleNamespace(session_id=session_id, parent_id=None, config={}))
            self.label = label

    tracking = Tracking("mine", session_id="s-1")

    assert (tracking.label, tracking.session_id, tracking.get("tools")) == ("mine", "s-1", {})


@pytest.mark.parametrize(
    ("config", "budget", "size"),
    [
        ({}, 10_000, 10_240),
        ({"session": {}}, 10_000, 10_240),
        ({"session": {"injection_budget_per_turn": 5, "injection_size_limit": 0}}, 5, 0),
        ({"session": {"injection_budget_per_turn": None, "injection_size_limit": None}}, None, None),
        (MappingProxyType({"session": MappingProxyType({"injection_size_limit": 3})}), 10_000, 3),
        ({"session": None}, 10_000, 10_240),
        (SimpleNamespace(model_dump=dict), 10_000, 10_240),
    ],
    ids=repr,
)
def test_injection_limits_come_from_the_plan(config: Any, budget: int | None, size: int | None) -> None:
    coordinator = ModuleCoordinator(SimpleNamespace(session_id="s-1", parent_id=None, config=config))

    assert coordinator.config is config
    assert (coordinator.injection_budget_per_turn, coordinator.injection_size_limit) == (budget, size)


def test_injection_limits_follow_changes_of_the_plan(coordinator: ModuleCoordinator) -> None:
    coordinator.config["session"] = {"injection_size_limit": 7}

    assert coordinator.injection_size_limit == 7


@pytest.mark.parametrize("point", SLOTS)
async def test_a_slot_holds_one_module_and_ignores_names(coordinator: ModuleCoordinator, point: str) -> None:
    first, second = named("first"), named("second")
    assert coordinator.get(point) is None
    assert coordinator.get_mounted(point) == []

    await coordinator.mount(point, first)
    assert coordinator.get(point, "whatever") is first
    await coordinator.mount(point, second, name="whatever")
    assert coordinator.get(point) is second
    assert coordinator.get_mounted(point) == [point]

    await coordinator.unmount(point, "whatever")
    assert coordinator.get(point) is None
    await coordinator.unmount(point)
    assert coordinator.get_mounted(point) == []


@pytest.mark.parametrize("point", COLLECTIONS)
async def test_a_collection_holds_modules_by_name(coordinator: ModuleCoordinator, point: str) -> None:
    own, given, nameless = named("own"), named("own"), named("own")
    live = coordinator.get(point)

    await coordinator.mount(point, own)
    await coordinator.mount(point, given, name="given")
    await coordinator.mount(point, nameless, name="")

    assert coordinator.get(point) is live is coordinator.mount_points[point]
    assert live == {"own": own, "given": given, "": nameless}
    assert coordinator.get(point, "given") is given
    assert coordinator.get(point, "") is nameless
    assert coordinator.get(point, "unknown") is None
    assert coordinator.get_mounted(point) == ["own", "given", ""]


@pytest.mark.parametrize("point", COLLECTIONS)
async def test_mounting_a_name_again_replaces_in_place(coordinator: ModuleCoordinator, point: str) -> None:
    replacement = named("a")
    for module in (named("a"), named("b"), replacement):
        await coordinator.mount(point, module)

    assert coordinator.get_mounted(point) == ["a", "b"]
    assert coordinator.get(point, "a") is replacement


@pytest.mark.parametrize("point", COLLECTIONS)
async def test_a_collection_needs_a_name(coordinator: ModuleCoordinator, point: str) -> None:
    with pytest.raises(ValueError, match=f"^Name required for {point}$"):
        await coordinator.mount(point, object())
    with pytest.raises(TypeError):
        await coordinator.mount(point, named(5))
    with pytest.raises(ValueError, match=f"^Name required to unmount from {point}$"):
        await coordinator.unmount(point)

    assert coordinator.get(point) == {}


@pytest.mark.parametrize("point", COLLECTIONS)
async def test_unmounting_takes_one_module_away(coordinator: ModuleCoordinator, point: str) -> None:
    await coordinator.mount(point, named("a"))
    await coordinator.mount(point, named("b"))

    await coordinator.unmount(point, "a")
    await coordinator.unmount(point, "never mounted")

    assert coordinator.get_mounted(point) == ["b"]


async def test_hooks_are_registered_and_not_mounted(coordinator: ModuleCoordinator) -> None:
    registry = coordinator.hooks
    for event, name in [("tool:pre", "guard"), ("tool:post", "log"), ("tool:post", "guard")]:
        registry.register(event, lambda event, data: None, name=name)

    with pytest.raises(ValueError, match=r"^Hooks should be registered directly with the HookRegistry$"):
        await coordinator.mount("hooks", named("guard"))
    await coordinator.unmount("hooks", "guard")

    assert coordinator.get("hooks") is coordinator.get("hooks", "guard") is registry
    assert coordinator.get_mounted("hooks") == ["guard", "log"]


async def test_other_keys_among_the_mount_points_are_inert(coordinator: ModuleCoordinator) -> None:
    coordinator.mount_points["extra"] = {"a": 1}

    await coordinator.mount("extra", named("b"))
    await coordinator.unmount("extra", "a")

    assert coordinator.get("extra") is coordinator.get("extra", "a") is None
    assert coordinator.get_mounted("extra") == []
    assert coordinator.mount_points["extra"] == {"a": 1}


@pytest.mark.parametrize("point", ["agents", "tool", "", "session"])
async def test_an_unknown_mount_point_is_refused(coordinator: ModuleCoordinator, point: str) -> None:
    message = f"^Unknown mount point: {point}$"
    with pytest.raises(ValueError, match=message):
        await coordinator.mount(point, named("a"), name="a")
    with pytest.raises(ValueError, match=message):
        await coordinator.unmount(point)
    with pytest.raises(ValueError, match=message):
        coordinator.get(point)
    with pytest.raises(ValueError, match=message):
        coordinator.get_mounted(point)


@pytest.mark.parametrize("slot", ["orchestrator", "context"])
async def test_the_session_spelling_names_a_slot(coordinator: ModuleCoordinator, slot: str) -> None:
    module = object()

    await coordinator.mount("session", module, name=slot)
    assert coordinator.get(slot) is coordinator.get("session", slot) is module
    await coordinator.unmount("session", slot)
    assert coordinator.get(slot) is None

    with pytest.raises(ValueError, match=r"^Unknown mount point: session$"):
        await coordinator.mount("session", module, name="tools")


def test_capabilities_are_kept_by_name(coordinator: ModuleCoordinator) -> None:
    value, other = object(), object()
    assert coordinator.get_capability("session.spawn") is None

    coordinator.register_capability("session.spawn", value)
    assert coordinator.get_capability("session.spawn") is value
    coordinator.register_capability("session.spawn", other)
    assert coordinator.get_capability("session.spawn") is other
    coordinator.register_capability("session.spawn", None)
    assert coordinator.get_capability("session.spawn") is None
    assert coordinator.to_dict()["capabilities"] == ["session.spawn"]


@pytest.mark.parametrize(("immediate", "state"), [(False, "graceful"), (True, "immediate")])
async def test_a_request_to_cancel_sets_the_token_and_nothing_else(
    coordinator: ModuleCoordinator, immediate: bool, state: str
) -> None:
    calls: list[str] = []
    coordinator.cancellation.on_cancel(lambda: calls.append("callback"))
    for event in ("cancel:requested", "cancel:completed"):
        coordinator.hooks.register(event, lambda event, data: calls.append(event))

    await coordinator.request_cancel(immediate)
    coordinator.reset_turn()

    assert coordinator.cancellation.state == state
    assert calls == []


async def test_a_request_is_graceful_unless_told_otherwise(coordinator: ModuleCoordinator) -> None:
    await coordinator.request_cancel()
    assert coordinator.cancellation.is_graceful
    await coordinator.request_cancel(immediate=True)
    assert coordinator.cancellation.is_immediate


async def test_the_summary_names_what_is_there() -> None:
    coordinator = ModuleCoordinator(approval_system=object())
    assert coordinator.to_dict() == {
        "tools": [],
        "providers": [],
        "has_orchestrator": False,
        "has_context": False,
        "capabilities": [],
        "has_approval_provider": True,
        "has_display_service": False,
    }

    for name in ("b", "a"):
        await coordinator.mount("tools", named(f"tool {name}"))
        await coordinator.mount("providers", named(f"provider {name}"))
        coordinator.register_capability(f"capability {name}", None)
    await coordinator.mount("orchestrator", object())
    await coordinator.mount("context", [])
    coordinator.approval_system, coordinator.display_system = None, object()

    assert coordinator.to_dict() == {
        "tools": ["tool b", "tool a"],
        "providers": ["provider b", "provider a"],
        "has_orchestrator": True,
        "has_context": True,
        "capabilities": ["capability b", "capability a"],
        "has_approval_provider": False,
        "has_display_service": True,
    }
