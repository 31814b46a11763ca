"""Opening the page: a link that logs a browser in, and the browser where there is one."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser

from amplifierd.client.daemon_client import DaemonClient
from amplifierd.exceptions import NotReadyError
from amplifierd.paths import Paths
from amplifierd.server.run_file import RunningDaemon, find_running

_PAGE = "/app/"


def login_link(paths: Paths) -> str:
    """Return a link to the page of the daemon that serves a home: good once and for a minute, if it has to log in.

    Raises:
        NotReadyError: no daemon serves the home, or only on a Unix socket, which no browser opens.
    """
    running = find_running(paths)
    if running is None:
        raise NotReadyError(f"no daemon serves {paths.home}", hint="start one: amplifier daemon start")
    if running.uds is not None:
        hint = "start it with --port, or put a proxy before the socket"
        raise NotReadyError(f"the daemon listens on {running.uds}, which no browser can open", hint=hint)
    return running.url + asyncio.run(_path(running, paths))


async def _path(running: RunningDaemon, paths: Paths) -> str:
    async with DaemonClient.of(running, paths) as client:
        me = await client.get("/auth/me")
        if me["via"] != "token":
            return _PAGE  # no login is needed
        ticket = await client.post("/auth/ticket", {"purpose": "login"})
        path: str = ticket["path"]
        return path


def open_browser(link: str) -> bool:
    """Show a link in the browser of this desktop; False when there is none."""
    has_desktop = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return bool(has_desktop or os.environ.get("BROWSER")) and webbrowser.open(link)
