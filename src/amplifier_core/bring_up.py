"""Bringing a session up: every module of the mount plan is loaded and mounted, in a fixed order.

Orchestrator, context, providers, tools, hooks; then the modules are told that the session is ready; then a child
session announces itself. What may fail is decided here, once: the orchestrator and the context may not, the rest is
skipped and recorded.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

from . import events
from .coordinator import Checkpoint, ModuleCoordinator
from .exceptions import MountPlanError, describe
from .loader import ModuleLoader, module_failure_reason
from .packages import TYPE_TO_MOUNT_POINT
from .utils.serialize import json_safe
from .utils.truncate import redact_secrets
from .validation.base import fulfils, instance_checks

if TYPE_CHECKING:
    from .session import AmplifierSession

logger = logging.getLogger(__name__)

_REQUIRED = {"orchestrator": "orchestrator", "context": "context manager"}
_DEFAULTS = {"orchestrator": "loop-basic", "context": "context-simple"}
_SECTIONS = {"providers": "provider", "tools": "tool", "hooks": "hook"}


class _Entry(NamedTuple):
    """One module of the plan; `place` is where it stands there."""

    place: str
    module_type: str
    module_id: str
    source: Any
    config: Any
    spec: Any = None
    instance_id: Any = None


async def bring_up(session: "AmplifierSession", loader: ModuleLoader) -> None:
    """Load and mount the plan of `session` on its coordinator."""
    plan, coordinator = session.config, session.coordinator
    _check_shape(plan)
    try:
        for name, title in _REQUIRED.items():
            await _mount_required(loader, coordinator, _session_entry(plan, name), title)
        _check_instances(plan)
        for section in _SECTIONS:
            for entry in _section_entries(plan, section):
                await _mount_optional(session, loader, coordinator, entry)
        await _tell_ready(loader, coordinator)
    finally:
        loader.clear_on_session_ready_queue()
    if session.parent_id:
        await coordinator.hooks.emit(events.SESSION_FORK, _fork_payload(session))


def _check_shape(plan: Mapping[str, Any]) -> None:
    """Refuse a plan whose parts have the wrong type, before anything is loaded."""
    session = plan.get("session", {})
    _require("session", session, Mapping, "a dict")
    for name in _REQUIRED:
        spec = session.get(name, _DEFAULTS[name])
        if isinstance(spec, dict):
            _check_names(f"session.{name}", spec)
        else:
            _require(f"session.{name}", spec, str, "a string or a dict")
            _require(name, plan.get(name, {}), dict, "a dict")
    for name in ("injection_budget_per_turn", "injection_size_limit"):
        _require(f"session.{name}", session.get(name), int | float | None, "a number or None")
    for section in _SECTIONS:
        _require(section, plan.get(section, []), list, "a list")
        for index, spec in enumerate(plan.get(section, [])):
            _require(f"{section}[{index}]", spec, dict, "a dict")
            _check_names(f"{section}[{index}]", spec)


def _require(place: str, value: object, kind: Any, title: str) -> None:
    if not isinstance(value, kind):
        raise MountPlanError(f"{place} must be {title}, got {type(value).__name__}")


def _check_names(place: str, spec: dict[str, Any]) -> None:
    for key in ("module", "instance_id"):
        if name := spec.get(key):
            _require(f"{place}.{key}", name, str, "a string")


def session_section(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the plan's `session` section; whoever holds the plan may have taken it away since it was checked."""
    section = plan.get("session")
    return section if isinstance(section, Mapping) else {}


def redacted(plan: Mapping[str, Any]) -> Any:
    """Return the plan as JSON data without its secrets, which may lie in any kind of mapping or sequence."""
    return redact_secrets(json_safe(plan))


def _session_entry(plan: Mapping[str, Any], name: str) -> _Entry:
    """Return the orchestrator's or context's entry, from either form of the plan."""
    session, default = session_section(plan), _DEFAULTS[name]
    spec = session.get(name, default)
    if isinstance(spec, dict):
        return _Entry(f"session.{name}", name, spec.get("module", default), spec.get("source"), spec.get("config"))
    return _Entry(name, name, spec, session.get(f"{name}_source"), plan.get(name, {}).get("config"))


def _section_entries(plan: Mapping[str, Any], section: str) -> list[_Entry]:
    entries = []
    for index, spec in enumerate(plan.get(section, [])):
        place = f"{section}[{index}]"
        if not spec.get("module"):
            logger.warning("%s names no module and is skipped", place)
            continue
        module_type = _SECTIONS[section]
        instance_id = spec.get("instance_id")
        entries.append(
            _Entry(place, module_type, spec["module"], spec.get("source"), spec.get("config"), spec, instance_id)
        )
    return entries


def _check_instances(plan: Mapping[str, Any]) -> None:
    unnamed = Counter(
        spec["module"] for spec in plan.get("providers", []) if spec.get("module") and not spec.get("instance_id")
    )
    for module_id, count in unnamed.items():
        if count > 1:
            raise MountPlanError(
                f"Multi-instance providers require explicit 'instance_id' on each additional entry. "
                f"Found {count} entries for module '{module_id}' without instance_id "
                f"(at most 1 allowed as the default instance)."
            )


async def _mount_required(loader: ModuleLoader, coordinator: ModuleCoordinator, entry: _Entry, title: str) -> None:
    try:
        await _mount(loader, coordinator, entry)
    except Exception as exc:
        raise RuntimeError(f"Cannot initialize without {title}: {describe(exc)}") from exc


async def _mount_optional(
    session: "AmplifierSession", loader: ModuleLoader, coordinator: ModuleCoordinator, entry: _Entry
) -> None:
    try:
        await _mount(loader, coordinator, entry)
    except Exception as exc:
        text = describe(exc)
        logger.warning("Failed to load %s '%s': %s", entry.module_type, entry.module_id, text, exc_info=True)
        failure = {
            "module_type": entry.module_type,
            "module_id": entry.module_id,
            "error": text,
            "reason_code": module_failure_reason(exc),
        }
        if entry.instance_id:
            failure["instance_id"] = entry.instance_id
        session.status.load_failures.append(failure)
        await emit_quietly(coordinator, events.MODULE_LOAD_FAILED, failure)
        if entry.module_type == "provider" and (on_failure := coordinator.get_capability("provider.load_failure")):
            await on_failure(coordinator, _copy_of(entry.spec), exc)


async def _mount(loader: ModuleLoader, coordinator: ModuleCoordinator, entry: _Entry) -> None:
    """Load and mount one module; when that fails it leaves nothing behind."""
    if entry.config:
        _require(f"{entry.place}.config", entry.config, Mapping, "a dict")
    checkpoint = Checkpoint(coordinator)
    undo_load = None
    try:
        if entry.module_type == "provider" and (before_load := coordinator.get_capability("provider.before_load")):
            await before_load(coordinator, _copy_of(entry.spec))
        mount = await loader.load(
            entry.module_id, entry.config or {}, source_hint=entry.source, coordinator=coordinator
        )
        returned = await mount(coordinator)
        undo_load = getattr(mount, "__undo_load__", None)
        await _take_returned(coordinator, checkpoint, entry, returned)
        if entry.module_type == "provider":
            await _settle_provider(coordinator, checkpoint, entry)
    except BaseException:
        await checkpoint.restore()
        if undo_load is not None:
            undo_load()
        raise
    if ready := getattr(mount, "__on_session_ready__", None):
        loader.enqueue_on_session_ready(*ready)


def _copy_of(spec: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of the plan for an application to look at, deep as far as its values can be copied."""
    try:
        return deepcopy(spec)
    except Exception:
        logger.debug("the entry of %r cannot be copied in depth", spec["module"], exc_info=True)
        return {key: {**value} if isinstance(value, dict) else value for key, value in spec.items()}


async def _take_returned(coordinator: ModuleCoordinator, checkpoint: Checkpoint, entry: _Entry, returned: Any) -> None:
    """Mount an instance that the module only returned; keep a callable as its cleanup."""
    if returned is None:
        return
    mount_point = TYPE_TO_MOUNT_POINT[entry.module_type]
    if not checkpoint.mounted_since(mount_point) and _is_instance(entry.module_type, returned):
        await coordinator.mount(mount_point, returned)
    elif not checkpoint.mounted_anywhere_since(returned):
        coordinator.register_cleanup(returned)


def _is_instance(module_type: str, candidate: Any) -> bool:
    return fulfils(module_type, candidate) and all(
        check.passed or check.severity != "error" for check in instance_checks(module_type, {}, candidate)
    )


async def _settle_provider(coordinator: ModuleCoordinator, checkpoint: Checkpoint, entry: _Entry) -> None:
    """Check that a provider is there, and move it from its default name to its `instance_id`."""
    mounted = checkpoint.mounted_since("providers")
    if not mounted:
        raise ValueError("Provider mount did not install a new provider instance")
    if not entry.instance_id:
        return
    default_name = entry.module_id.removeprefix("provider-")
    if default_name not in mounted:
        raise ValueError("Named provider mount did not install a new instance at its default mount name")
    if default_name == entry.instance_id:
        return
    await coordinator.mount("providers", mounted[default_name], name=entry.instance_id)
    previous = checkpoint.before("providers").get(default_name)
    if previous is not None:
        await coordinator.mount("providers", previous, name=default_name)
    else:
        await coordinator.unmount("providers", name=default_name)


async def _tell_ready(loader: ModuleLoader, coordinator: ModuleCoordinator) -> None:
    """Tell the modules that asked for it that all are mounted."""
    queue = loader.get_on_session_ready_queue()
    for module_id, callback in queue if isinstance(queue, list) else ():  # a stand-in for a loader may have none
        try:
            await callback(coordinator)
        except Exception as exc:
            text = describe(exc)
            logger.warning("on_session_ready for '%s' raised: %s", module_id, text, exc_info=True)
            failure = {"module_id": module_id, "error": text}
            await emit_quietly(coordinator, events.MODULE_ON_SESSION_READY_FAILED, failure)


async def emit_quietly(coordinator: ModuleCoordinator, event: str, payload: dict[str, Any]) -> None:
    """Emit an event that only reports what has happened already; that it cannot be heard is for the log."""
    try:
        await coordinator.hooks.emit(event, payload)
    except Exception:
        logger.debug("%s could not be emitted", event, exc_info=True)


def _fork_payload(session: "AmplifierSession") -> dict[str, Any]:
    section = session_section(session.config)
    payload: dict[str, Any] = {"parent": session.parent_id, "session_id": session.session_id}
    if metadata := section.get("metadata"):
        payload["metadata"] = metadata
    if section.get("raw"):
        payload["raw"] = redacted(session.config)
    return payload
