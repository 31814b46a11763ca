"""Bringing a session up: every module of the mount plan is loaded and mounted, in a fixed order.

Orchestrator, context, providers, tools, hooks; then the modules are told that the session is ready; then a child
session announces itself. What may fail is decided here, once: the orchestrator, the context and what the plan calls
`required` may not, the rest is skipped and recorded.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from threading import Lock
from typing import TYPE_CHECKING, Any

from . import events
from .boundary import Boundary, emit_quietly, raised_as
from .coordinator import ModuleCoordinator
from .exceptions import MountPlanError, ProviderNotMounted, describe, text_of
from .loaded_module import BoundModule
from .loader import ModuleLoader, module_failure_reason
from .mount_plan import SESSION_MEMBERS, MountPlan, PlanEntry
from .mounting import Mounting
from .packages import TYPE_TO_MOUNT_POINT, package_name, provider_name
from .utils.serialize import json_safe
from .utils.truncate import redact_secrets
from .validation.base import fulfils, instance_checks

if TYPE_CHECKING:
    from .session import AmplifierSession

logger = logging.getLogger(__name__)

_TITLES = {"orchestrator": "orchestrator", "context": "context manager"}
_DEFAULTS = {"orchestrator": "loop-basic", "context": "context-simple"}


async def bring_up(session: "AmplifierSession", loader: ModuleLoader) -> None:
    """Load and mount the plan of `session` on its coordinator."""
    plan, coordinator = MountPlan(session.config), session.coordinator
    _check_shape(plan)
    try:
        for entry in _member_entries(plan):
            await _mount_required(loader, coordinator, entry)
        _check_instances(plan)
        for entry in _listed_entries(plan):
            if entry.is_required:
                await _mount_required(loader, coordinator, entry)
            else:
                await _mount_optional(session, loader, coordinator, entry)
        await _notify_ready(loader, coordinator)
    finally:
        loader.clear_on_session_ready_queue()
    if session.parent_id:
        await coordinator.hooks.emit(events.SESSION_FORK, _fork_payload(session))


def _check_shape(plan: MountPlan) -> None:
    """Refuse a plan whose parts have the wrong type, before anything is loaded."""
    for problem in plan.problems():
        if problem.kind == "wrong-type" and problem.is_fatal:
            raise MountPlanError(str(problem))
        if problem.kind == "unread":
            logger.warning("mount plan: %s", problem)


def _member_entries(plan: MountPlan) -> list[PlanEntry]:
    """Return the entries of orchestrator and context; the plan may have lost them since the session was made."""
    named = {"session": {**_DEFAULTS, **plan.session}}
    sections = {member: plan.data[member] for member in SESSION_MEMBERS if member in plan.data}
    members = MountPlan({**sections, **named}).member_slots()
    return [one if "module" in one.spec else one._replace(module_id=_DEFAULTS[one.section]) for one in members]


def _listed_entries(plan: MountPlan) -> Iterator[PlanEntry]:
    for entry in plan.listed_slots():
        if entry.module_id:
            yield entry
        elif entry.is_required:
            raise RuntimeError(f"Cannot initialize without required module '': {entry.place} names no module")
        else:
            logger.warning("%s names no module and is skipped", entry.place)


def redacted(plan: Mapping[str, Any]) -> Any:
    """Return the plan as JSON data without its secrets, which may lie in any kind of mapping or sequence."""
    return redact_secrets(json_safe(plan))


def _check_instances(plan: MountPlan) -> None:
    for module_id, count in plan.repeated_without_instance().items():
        raise MountPlanError(
            f"Multi-instance providers require explicit 'instance_id' on each additional entry. "
            f"Found {count} entries for module '{module_id}' without instance_id "
            f"(at most 1 allowed as the default instance)."
        )


async def _mount_required(loader: ModuleLoader, coordinator: ModuleCoordinator, entry: PlanEntry) -> None:
    title = _TITLES.get(entry.section) or f"required module '{entry.module_id}'"
    with raised_as(lambda error: RuntimeError(f"Cannot initialize without {title}: {text_of(error)}")):
        await _mount(loader, coordinator, entry)


async def _mount_optional(
    session: "AmplifierSession", loader: ModuleLoader, coordinator: ModuleCoordinator, entry: PlanEntry
) -> None:
    message = "Failed to load %s '%s': %s"
    with Boundary(logger, message, entry.module_type, entry.module_id) as boundary:
        await _mount(loader, coordinator, entry)
    if boundary.error is None:
        return
    failure = {
        "module_type": entry.module_type,
        "module_id": entry.module_id,
        "error": _reason(boundary.error),
        "reason_code": module_failure_reason(boundary.error),
    }
    if entry.instance_id:
        failure["instance_id"] = entry.instance_id
    session.status.load_failures.append(failure)
    await emit_quietly(coordinator.hooks, events.MODULE_LOAD_FAILED, failure)
    if entry.module_type == "provider" and (on_failure := coordinator.get_capability("provider.load_failure")):
        await on_failure(coordinator, _copy_of(entry.spec), boundary.error)


async def _mount(loader: ModuleLoader, coordinator: ModuleCoordinator, entry: PlanEntry) -> None:
    """Load and mount one module; when that fails it leaves nothing behind."""
    config = entry.spec.get("config")
    if config and not _is_config(config):
        raise MountPlanError(f"{entry.config_place} must be a dict, got {type(config).__name__}")
    is_provider = entry.module_type == "provider"
    known = _providers(coordinator) if is_provider else {}
    if is_provider and (before_load := coordinator.get_capability("provider.before_load")):
        await before_load(coordinator, _copy_of(entry.spec))
    mount = await loader.load(entry.module_id, config or {}, source_hint=entry.source, coordinator=coordinator)
    async with Mounting(coordinator, is_required=entry.is_required) as mounting:
        if is_provider:
            with heard_from(_package_of(mount, entry.module_id)) as said:
                returned = await _mount_within(mounting, mount, coordinator)
            await _take_returned(coordinator, mounting, entry, returned)
            await _settle_provider(coordinator, known, entry, said)
        else:
            await _take_returned(coordinator, mounting, entry, await _mount_within(mounting, mount, coordinator))
    if ready := getattr(mount, "__on_session_ready__", None):
        loader.enqueue_on_session_ready(*ready)


async def _mount_within(mounting: Mounting, mount: Any, coordinator: ModuleCoordinator) -> Any:
    if isinstance(mount, BoundModule):
        return await mount.mount_within(mounting, coordinator)
    return await mount(coordinator)  # from a stand-in for a loader


def _is_config(value: Any) -> bool:
    """True if a module could read settings from `value`: by key, or by attribute as from a model or a namespace."""
    return isinstance(value, Mapping) or hasattr(value, "__dict__")


def _copy_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of the plan for an application to look at, deep as far as its values can be copied."""
    with Boundary(logger, "the entry of %r cannot be copied in depth: %s", spec["module"], level=logging.DEBUG):
        return deepcopy(dict(spec))
    return {key: {**value} if isinstance(value, dict) else value for key, value in spec.items()}


async def _take_returned(coordinator: ModuleCoordinator, mounting: Mounting, entry: PlanEntry, returned: Any) -> None:
    """Mount an instance that the module only returned; keep a callable as its cleanup."""
    if returned is None:
        return
    mount_point = TYPE_TO_MOUNT_POINT[entry.module_type]
    if not mounting.mounted(mount_point) and _is_instance(entry.module_type, returned):
        await coordinator.mount(mount_point, returned)
    elif not mounting.has_mounted(returned):
        coordinator.register_cleanup(returned)


def _is_instance(module_type: str, candidate: Any) -> bool:
    return fulfils(module_type, candidate) and all(
        check.passed or check.severity != "error" for check in instance_checks(module_type, {}, candidate)
    )


def _package_of(mount: Any, module_id: str) -> str:
    """Return the package in which a module logs; a stand-in for a loader gives functions of its own."""
    home = getattr(mount, "__module__", None)
    own = package_name(module_id) if not isinstance(home, str) else home.partition(".")[0]
    return own if own != __package__ else package_name(module_id)


def _providers(coordinator: ModuleCoordinator) -> dict[str, Any]:
    return dict(coordinator.get("providers") or {})


async def _settle_provider(
    coordinator: ModuleCoordinator, known: dict[str, Any], entry: PlanEntry, said: list[str]
) -> None:
    """Check that a provider is there, and move it from its default name to its `instance_id`.

    `known` are the providers from before; whatever way the module took, what is not among them is new. `said` is what
    the module logged meanwhile: when it installed nothing, that is why.
    """
    mounted = {name: one for name, one in _providers(coordinator).items() if known.get(name) is not one}
    if not mounted:
        reasons = "".join(f"\n  {text}" for text in said)
        raise ProviderNotMounted(f"Provider mount did not install a new provider instance{reasons}")
    if not entry.instance_id:
        return
    default_name = provider_name(entry.module_id)
    if default_name not in mounted:
        raise ProviderNotMounted("Named provider mount did not install a new instance at its default mount name")
    if default_name == entry.instance_id:
        return
    await coordinator.mount("providers", mounted[default_name], name=entry.instance_id)
    if known.get(default_name) is not None:
        await coordinator.mount("providers", known[default_name], name=default_name)
    else:
        await coordinator.unmount("providers", name=default_name)


async def _notify_ready(loader: ModuleLoader, coordinator: ModuleCoordinator) -> None:
    """Tell the modules that asked for it that all are mounted."""
    queue = loader.get_on_session_ready_queue()
    for module_id, callback in queue if isinstance(queue, Sequence) else ():  # a stand-in for a loader may have none
        with Boundary(logger, "on_session_ready for '%s' raised: %s", module_id) as boundary:
            await callback(coordinator)
        if boundary.error is not None:
            failure = {"module_id": module_id, "error": _reason(boundary.error)}
            await emit_quietly(coordinator.hooks, events.MODULE_ON_SESSION_READY_FAILED, failure)


def _reason(error: BaseException) -> str:
    return describe(error) or type(error).__name__


def _fork_payload(session: "AmplifierSession") -> events.EventData:
    section = MountPlan(session.config).session
    payload: events.EventData = {"parent": session.parent_id, "session_id": session.session_id}
    if metadata := section.get("metadata"):
        payload["metadata"] = metadata
    if section.get("raw"):
        payload["raw"] = redacted(session.config)
    return payload


_heard: ContextVar[list[str] | None] = ContextVar("amplifier_core.module_log", default=None)
_blocks: Counter[str] = Counter()  # package → how many blocks it is heard in at the moment
_lock = Lock()


class _Listener(logging.Handler):
    """Records warnings for the block in this context; nothing changes for others, or for what is printed."""

    def emit(self, record: logging.LogRecord) -> None:
        said = _heard.get()
        if said is not None and record.levelno >= logging.WARNING:
            said.append(record.getMessage())
        last_resort = logging.lastResort  # Python's own, which steps back as soon as there is any handler
        if last_resort is not None and record.levelno >= last_resort.level and not _has_other_handler(record.name):
            last_resort.handle(record)


_listener = _Listener()


@contextmanager
def heard_from(package: str) -> Iterator[list[str]]:
    """Collect the warnings and errors that a package logs until the end of the block."""
    said: list[str] = []
    token = _heard.set(said)
    _listen(package)
    try:
        yield said
    finally:
        _stop_listening(package)
        _heard.reset(token)


def _listen(package: str) -> None:
    with _lock:
        _blocks[package] += 1
        logging.getLogger(package).addHandler(_listener)


def _stop_listening(package: str) -> None:
    with _lock:
        _blocks[package] -= 1
        if not _blocks[package]:
            del _blocks[package]
            logging.getLogger(package).removeHandler(_listener)


def _has_other_handler(name: str) -> bool:
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(handler is not _listener for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False
