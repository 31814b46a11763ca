"""Sessions in the daemon of a home: which daemon, and how a session begins or goes on there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.exceptions import ModuleLoadError
from amplifierd.daemon.run_file import find_running
from amplifierd.home import Home
from amplifierd.paths import Paths
from amplifierd.session_store.record import SessionRecord
from amplifierd.sessions.approvers import Approver

from .config import ResolvedConfig
from .failures import UsageError, say
from .resumption import CHANGEABLE, cannot_start, given, other_profile, tell_state
from .session_names import short_id

if TYPE_CHECKING:
    from amplifierd.client.daemon_client import DaemonClient
    from amplifierd.client.remote_session import RemoteSession

_START = "start one: amplifier daemon start"


@asynccontextmanager
async def daemon_of(paths: Paths, wanted: bool | None, config: ResolvedConfig) -> AsyncIterator[DaemonClient | None]:
    """Connect to the daemon of a home, None when the work is to be done here.

    Without a word of the person it is the daemon's if one runs, unless the project brings modules of its own, which
    only this process may load.

    Raises:
        UsageError: a daemon is asked for, and none runs.
    """
    is_local = wanted is False or (wanted is None and config.is_trusted and bool(config.files.of_project()))
    running = None if is_local else find_running(paths)
    if running is None:
        if wanted:
            raise UsageError(f"no daemon serves {paths.home}", hint=_START)
        yield None
        return
    from amplifierd.client.daemon_client import DaemonClient  # few commands speak to a daemon

    async with DaemonClient.of(running, paths) as client:
        yield client


@asynccontextmanager
async def attended(opening: Coroutine[Any, Any, RemoteSession]) -> AsyncIterator[RemoteSession]:
    """Open a session of a daemon for a block, and leave it after.

    Raises:
        SessionStartError: a module that it cannot do without is broken.
        DaemonLostError: the daemon ended; the message says how to go on.
    """
    try:
        session = await opening
    except ModuleLoadError as error:
        raise cannot_start(error) from error
    tell_state(session.record, say)
    try:
        with lost_with(session.session_id):
            yield session
    finally:
        await session.close()


@contextmanager
def lost_with(session_id: str) -> Iterator[None]:
    """Say how to go on with a session when its daemon ends in the block."""
    from amplifierd.client.daemon_client import DaemonLostError  # it is loaded already

    try:
        yield
    except DaemonLostError as error:
        short = short_id(session_id)
        error.reword(
            error.message, hint=f'session {short} is stored, go on with it: amplifier run --resume {short} "…"'
        )
        raise


async def begun_remotely(
    client: DaemonClient, agent: Mapping[str, Any], approver: Approver, *, name: str | None
) -> RemoteSession:
    """Begin a session in the daemon; `agent` is what `home.sessions.open` takes."""
    from amplifierd.client.remote_session import RemoteSession  # few commands speak to a daemon

    body = {
        "profile_name": agent.get("profile"),
        "bundle_uri": agent.get("bundle"),
        "mount_plan": agent.get("plan"),
        "settings_overrides": agent.get("overrides"),
        "limits": agent.get("limits"),
        "working_dir": str(Path.cwd()),
        "name": name,
    }
    return await RemoteSession.create(client, body, approver)


async def resumed_remotely(
    home: Home,
    client: DaemonClient,
    record: SessionRecord,
    approver: Approver,
    flags: Mapping[str, Any],
    *,
    plan: Path | None,
) -> RemoteSession:
    """Go on with a stored session in the daemon. With the flag `profile` it goes on with that one.

    Raises:
        UsageError: a flag is given that cannot change for a session, or not there.
    """
    from amplifierd.client.remote_session import RemoteSession  # few commands speak to a daemon

    wanted, path = given(flags, plan), f"/sessions/{record.session_id}"
    here_only = [f"--{key.replace('_', '-')}" for key in CHANGEABLE if key in wanted]
    if here_only:
        raise UsageError(
            f"{', '.join(here_only)} cannot be changed for a session in the daemon",
            hint="stop the daemon first: amplifier daemon stop; or start a new session",
        )
    if profile := await other_profile(home, record, wanted):
        await client.post(f"{path}/change-profile", {"profile_name": profile})
    if "max_cost" in wanted:
        await client.patch(path, {"limits": {**(record.limits or {}), "cost_usd": wanted["max_cost"]}})
    return await RemoteSession.resume(client, record.session_id, approver)
