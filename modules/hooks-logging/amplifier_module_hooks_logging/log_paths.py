"""Where a session's log is."""

import os
import re
from pathlib import Path
from typing import Any

from amplifier_kit.mounting import find_capability, project_slug, working_dir

_PLACEHOLDER = re.compile(r"\{(project|session_id)\}")
_UNSAFE = re.compile(r"[/\\\0\ud800-\udfff]|\.\.|\A\.\Z")  # what leads elsewhere, and what no file name can have
_MAX_REMEMBERED = 256


class LogPaths:
    """Fills the template in; a relative one is relative to the session's working directory."""

    def __init__(self, template: str, coordinator: Any) -> None:
        self._template = os.path.expanduser(template)  # noqa: PTH111 - a Path raises if there is no home directory
        self._coordinator = coordinator
        self._depends_on_directory = "{project}" in template or not os.path.isabs(self._template)  # noqa: PTH117
        self._paths: dict[tuple[object, str], Path] = {}

    def path_of(self, session_id: str) -> Path:
        """Return the log of a session, which never lies outside the template's directory."""
        key = (self._place(), session_id)
        path = self._paths.get(key)
        if path is None:
            if len(self._paths) >= _MAX_REMEMBERED:
                self._paths.clear()
            path = self._paths[key] = self._fill_in(session_id)
        return path

    def _place(self) -> object:
        """Return what the working directory hangs on; asked for every record, and quicker than the directory."""
        if not self._depends_on_directory:
            return None
        declared = find_capability(self._coordinator, "session.working_dir")
        return declared if declared and isinstance(declared, str | Path) else os.getcwd()  # noqa: PTH109

    def _fill_in(self, session_id: str) -> Path:
        directory = working_dir(self._coordinator) if self._depends_on_directory else None
        values = {
            "session_id": _UNSAFE.sub("_", session_id),
            "project": project_slug(directory) if directory is not None else "",
        }
        path = Path(_PLACEHOLDER.sub(lambda found: values[found[1]], self._template))
        return directory / path if directory is not None else path
