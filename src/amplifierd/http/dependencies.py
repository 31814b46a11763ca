"""What endpoints ask for by type: the daemon that serves them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from amplifierd.daemon.daemon import Daemon


def _daemon(request: Request) -> Daemon:
    daemon: Daemon = request.app.state.daemon
    return daemon


TheDaemon = Annotated[Daemon, Depends(_daemon)]
