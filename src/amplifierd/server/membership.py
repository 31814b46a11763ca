"""A daemon that keeps its sessions in a shared store, as a member of the cluster that uses it."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from amplifier_core.exceptions import AmplifierError
from amplifier_system.tasks import start_task
from amplifier_system.urls import is_loopback
from amplifierd.cluster.cluster_token import find_cluster_token
from amplifierd.cluster.member_choice import labels_of
from amplifierd.exceptions import MemberFencedError, SettingsError
from amplifierd.settings import Settings

from .stale_completions import is_completion

if TYPE_CHECKING:
    from amplifierd.cluster.cluster import Cluster

    from .daemon import Daemon

logger = logging.getLogger(__name__)

_ANYWHERE = ("0.0.0.0", "::", "")


def open_cluster(daemon: Daemon, address: str | None) -> Cluster | None:
    """Return the cluster that a daemon belongs to, which it has not joined yet; None if it keeps sessions in files.

    `address` is where the daemon listens.

    Raises:
        SettingsError: the token cannot be used, or it is not known where others reach this daemon.
    """
    home, settings = daemon.home, daemon.home.settings
    if settings.store.is_files:
        return None
    from amplifierd.cluster.cluster import Cluster  # what sends requests, for who has someone to send them to

    reached = reached_at(settings, address)
    if reached is not None and is_overheard(reached):
        warning = f"members speak to this one without TLS, at {reached}: anyone on the network path reads what "
        warning += "is asked and answered, and can change answers; set tls.mode and cluster.address to https://…"
        logger.warning("%s", warning)
        daemon.warnings.append(warning)
    return Cluster(
        home.sessions.runtime.store,  # type: ignore[arg-type] # the settings say which store it is
        find_cluster_token(home.paths),
        address=reached,
        labels=labels_of(settings.cluster),
        load=lambda: load_of(daemon),
        take_over=lambda session_id: take_over(daemon, session_id),
        on_fenced=lambda: abandon(daemon),
        tls=member_tls(settings),
    )


async def abandon(daemon: Daemon) -> None:
    """Let go of everything that a daemon has as a member which others fenced, before it is a member again."""
    await daemon.turns.abandon()
    await daemon.live.abandon()


async def take_over(daemon: Daemon, session_id: str) -> None:
    """Make whole what a member left of a session; no client waits for a completion any more.

    Raises:
        SessionHeldError: another member has it.
    """
    sessions = daemon.home.sessions
    if is_completion(await sessions.runtime.store.read(session_id)):
        await sessions.delete(session_id, force=True, forever=True)
    else:
        await daemon.turns.take_over(session_id)


def reached_at(settings: Settings, address: str | None) -> str | None:
    """Return where other members reach a daemon that listens at an address.

    Raises:
        SettingsError: it listens everywhere, and the settings do not say which of its addresses others know.
    """
    if settings.cluster.address is not None:
        return settings.cluster.address
    if address is None or not address.startswith(("http://", "https://")):
        return None
    if (urlsplit(address).hostname or "") in _ANYWHERE:
        raise SettingsError(
            f"the daemon listens on {settings.host}, which is not an address that other machines can call",
            hint="set cluster.address to the one by which they reach this machine, for example http://10.0.0.5:8420",
        )
    return address


def is_overheard(address: str) -> bool:
    """True if what is sent to an address crosses a network as it is."""
    parts = urlsplit(address)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def load_of(daemon: Daemon) -> dict[str, Any]:
    """Return how busy a daemon is."""
    states = daemon.live.states()
    return {
        "sessions": len(states),
        "turns": sum(state.activity != "idle" for state in states),
        "workers": len(daemon.live.workers()),
        "loop_lag_ms": round(daemon.loop_lag.last_s * 1000, 1),
    }


def member_tls(settings: Settings) -> ssl.SSLContext | None:
    """Return by what other members are known that speak TLS: by `cluster.ca_file` alone, if it is set.

    Raises:
        SettingsError: the file cannot be used.
    """
    if settings.cluster.ca_file is None:
        return None
    try:
        return ssl.create_default_context(cafile=settings.cluster.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"cluster.ca_file cannot be used: {error}", hint="name a PEM file of certificates"
        ) from error


_AGAIN_S = 1.0


class Draining:
    """The way of one daemon out of its cluster. Afterwards it still answers, and passes everything on."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._running: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin, unless that was done."""
        if self._running is None:
            self._running = start_task(self._run())

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        daemon, cluster = self._daemon, self._daemon.cluster
        assert cluster is not None
        logger.info("the daemon is taken out of service")
        daemon.phase = "draining"
        steps = (
            *(cluster.set_draining, daemon.upkeep.stop, daemon.turns.drain, daemon.live.drain, daemon.live.release),
            cluster.leave,
        )
        try:
            for step in steps:
                await _until_done(step)
        except MemberFencedError as error:
            logger.warning("the daemon was fenced while it was taken out of service: %s", error)
        else:
            logger.info("the daemon is out of service: it has no sessions left")


async def _until_done(step: Callable[[], Awaitable[None]]) -> None:
    """Take a step, however often the store or a worker fails it.

    Raises:
        MemberFencedError: the others have taken everything already.
    """
    while True:
        try:
            await step()
        except MemberFencedError:
            raise
        except (AmplifierError, OSError) as error:
            logger.warning("the daemon is not out of service yet: %s", error)
            await asyncio.sleep(_AGAIN_S)
        else:
            return
