"""The bundles that are registered in a home, as they are shown."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from amplifier_core.mount_plan import MountPlan
from amplifier_foundation.bundle import Bundle
from amplifier_foundation.exceptions import BundleError
from amplifier_foundation.registry import BundleRegistry, BundleState
from amplifierd.exceptions import ForbiddenError, RequestRefusedError
from amplifierd.server.auth.callers import Caller
from amplifierd.sessions.home_sessions import Sessions
from amplifierd.settings import SecuritySettings


async def list_bundles(bundles: BundleRegistry) -> list[dict[str, Any]]:
    """Return every registered bundle that is more than a part of another; one that cannot be loaded says why."""
    states = bundles.get_state()
    own = (states[name] for name in sorted(states))
    return [await _described(bundles, state) for state in own if state.explicitly_requested or not state.included_by]


def check_address(bundles: BundleRegistry, uri: str | None, caller: Caller, security: SecuritySettings) -> None:
    """Raise unless a caller may have the daemon fetch and run the bundle at an address.

    An administrator may name any. Others name one that is registered, so that a token for running sessions neither
    brings code of its own nor reaches what only the daemon's machine can: files, and hosts of its network.

    Raises:
        ForbiddenError: the address is not registered, and `security.allow_plan_sources` is off.
    """
    if uri is None or security.allow_plan_sources or caller.may("admin"):
        return
    if uri not in {state.uri for state in bundles.get_state().values()}:
        raise ForbiddenError(
            f"{caller.name!r} has the scope {caller.scope}, which runs registered bundles only",
            hint="have an administrator register it (POST /bundles), then name it with bundle_name",
        )


async def add_bundle(bundles: BundleRegistry, uri: str, name: str | None) -> dict[str, Any]:
    """Load a bundle with all it includes, and register it by its own name or another.

    Raises:
        BundleError: it cannot be obtained or used; nothing is registered.
        RequestRefusedError: the name is taken by another source (`bundle-exists`), or it has none.
    """
    loaded = await bundles.load_source(uri)
    called = name or loaded.name
    if not called:
        raise RequestRefusedError("the bundle has no name", code="validation-error", hint="give it one with `name`")
    if (known := bundles.get_state(called)) is not None and known.explicitly_requested:
        raise RequestRefusedError(f"There is already a bundle {called!r}", code="bundle-exists")
    bundles.register(called, uri)
    await bundles.load(called)
    bundles.save()
    return await _described(bundles, bundles.get_state(called) or BundleState(uri, called))


async def remove_bundle(bundles: BundleRegistry, sessions: Sessions, name: str) -> None:
    """Forget a bundle.

    Raises:
        RequestRefusedError: there is none of that name, or a session that has not ended runs it.
    """
    if bundles.get_state(name) is None:
        raise RequestRefusedError(f"Bundle not found: {name}", code="bundle-not-found")
    if await asyncio.to_thread(_is_used, sessions, name):
        raise RequestRefusedError(f"A session uses the bundle {name!r}", code="bundle-in-use")
    bundles.unregister(name)
    bundles.save()


async def _described(bundles: BundleRegistry, state: BundleState) -> dict[str, Any]:
    found = state.to_dict()
    about = {key: found.get(key) for key in ("name", "uri", "version", "loaded_at")}
    try:
        bundle = await bundles.load_source(state.name)
    except BundleError as error:
        return {**about, "error": error.message}
    return {**about, **_contents(bundle)}


def _contents(bundle: Bundle) -> dict[str, Any]:
    plan = bundle.to_mount_plan()
    modules: defaultdict[str, list[str]] = defaultdict(list)
    for entry in MountPlan(plan).entries():
        modules[entry.section].append(entry.identity)
    return {
        "version": bundle.version,
        "description": bundle.description,
        "includes": [item if isinstance(item, str) else str(item.get("bundle", item)) for item in bundle.includes],
        "providers": modules["providers"],
        "tools": modules["tools"],
        "hooks": modules["hooks"],
        "agents": sorted(plan.get("agents") or {}),
        "context_files": sorted(bundle.context),
    }


def _is_used(sessions: Sessions, name: str) -> bool:
    return any(sessions.list(status=status, bundle=name, limit=1).total for status in ("active", "created"))
