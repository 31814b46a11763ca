"""Sources that name a place on this machine by themselves: an absolute path, or a `file://` URL."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote

_SCHEME = "file://"


def path_of_source(source: Any) -> Path | None:
    """Return the path that an absolute path or a `file://` URL names, None for any other source.

    A URL's host is this machine, empty or `localhost`; its path is percent-decoded. Nothing is looked up.
    """
    text = os.fspath(source) if isinstance(source, os.PathLike) else source
    if not isinstance(text, str):
        return None
    if text.startswith(_SCHEME):
        host, slash, path = text.removeprefix(_SCHEME).partition("/")
        text = unquote(slash + path) if host in ("", "localhost") else ""
    return Path(text) if text.startswith("/") else None
