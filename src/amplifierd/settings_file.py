"""Writing `config/daemon.yaml`: first with every default as a comment, later by edits that keep what people wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from ruamel.yaml.comments import CommentedMap

from amplifier_foundation.sources.store import locked_now

from .exceptions import InvalidSettingError, SettingsError
from .settings import Settings, build_settings, whole_settings
from .settings_layers import NESTED, keys_of, parse_file, read_environment, settings_of
from .store_address import StoreAddress
from .yaml_edits import edited, mapping_in, replace_text

_LOCK_WAIT_S = 30.0
_HEADING = "# Settings of the daemon. A line that begins with '# ' shows the default; to change it, remove the '# '.\n"


def create_settings_file(file: Path) -> bool:
    """Write a file in which every setting stands with its default, as a comment; False when there is one already."""
    if file.exists():
        return False
    replace_text(file, _HEADING + "\n".join(_commented_defaults()) + "\n")
    return True


def edit_settings(file: Path, changes: Mapping[str, Any], *, locks_dir: Path) -> Settings:
    """Set the values of keys (`startup.update_on_start`) in a settings file; None takes a key out of it.

    Comments stay. Returns what the file means then, without environment and flags.

    Raises:
        InvalidSettingError: a key is unknown, or a value invalid or of no use here; the file is as it was.
        SettingsError: the file cannot be read or changed.
    """
    known = {".".join(path) for path, _ in keys_of(Settings)}
    if unknown := sorted(set(changes) - known):
        raise InvalidSettingError(f"{', '.join(unknown)}: not a setting")

    def change(document: CommentedMap) -> None:
        for key, value in changes.items():
            _set(document, key.split("."), value)

    with locked_now(locks_dir / "settings.lock", wait_s=_LOCK_WAIT_S) as held:
        if not held:
            raise SettingsError(f"{file} is being changed by another process")
        before = file.read_text(encoding="utf-8-sig") if file.exists() else ""
        parse_file(Settings, before, file)
        after = edited(before, change)
        layer = parse_file(Settings, after, file)
        settings = build_settings({}, layer)
        whole_settings({}, read_environment(Settings, os.environ), layer)
        replace_text(file, after)
    return settings


def _set(document: CommentedMap, path: list[str], value: Any) -> None:
    """Put a value where its key is, under `daemon:` if it stands there."""
    nested = document.get(NESTED)
    top = nested if isinstance(nested, CommentedMap) and path[0] in nested and path[0] not in document else document
    holder = top if len(path) == 1 else mapping_in(top, path[0])
    if value is None:
        holder.pop(path[-1], None)
    else:
        holder[path[-1]] = value


def _commented_defaults() -> list[str]:
    lines: list[str] = []
    for name, info in settings_of(Settings):
        if not isinstance(info.default, BaseModel):
            lines.append(f"# {name}: {_text(info.default)}  # {info.description}")
            continue
        lines += ["", f"# {name}:"]
        fields = type(info.default).model_fields.items()
        lines += [f"#   {key}: {_text(inner.default)}  # {inner.description}" for key, inner in fields]
    return lines


def _text(default: Any) -> str:
    return str(default) if isinstance(default, str | Path | StoreAddress) else json.dumps(default)
