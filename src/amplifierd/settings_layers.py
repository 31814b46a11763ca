"""What the environment and the settings file say, as plain data that remembers where each value was found."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from amplifier_foundation.dicts import deep_merge
from amplifier_foundation.io import load_yaml, yaml_problem
from amplifier_system.homes import PREFIX

from .exceptions import SettingsError

NESTED = "daemon"
"""The section under which top-level keys may stand as well."""

ELSEWHERE = frozenset({f"{PREFIX}CLUSTER__TOKEN"})
"""Variables that are read by who needs them: secrets are not settings, which can be looked at."""

KeyPath = tuple[str, ...]
_NONE = ("none", "null")


@dataclass(frozen=True)
class Layer:
    """The values of one origin; `places` tells where a value was found, by key path, `name` where all others were."""

    name: str
    values: Mapping[str, Any]
    places: Mapping[KeyPath, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def find_place(self, path: KeyPath) -> str | None:
        """Return where the value at a key path was found, None when this origin has none."""
        value: Any = self.values
        for key in path:
            if not isinstance(value, Mapping) or key not in value:
                return None
            value = value[key]
        return self.places.get(path, self.name)


def read_environment(model: type[BaseModel], environ: Mapping[str, str]) -> Layer:
    """Return what `AMPLIFIERD_<KEY>` and `AMPLIFIERD_<SECTION>__<KEY>` set; one underscore is accepted too.

    Raises:
        SettingsError: a list is not JSON.
    """
    values: dict[str, Any] = {}
    places: dict[KeyPath, str] = {}
    known = {*ELSEWHERE}
    for path, info in keys_of(model):
        names = _variables(path)
        known.update(names)
        name = next((name for name in names if environ.get(name, "").strip()), None)
        if name is None:
            continue
        target = values if len(path) == 1 else values.setdefault(path[0], {})
        target[path[-1]] = _parse(environ[name].strip(), info, name)
        places[path] = name
    unknown = sorted(name for name in environ if name.startswith(PREFIX) and "__" in name and name not in known)
    return Layer("environment", values, places, tuple(f"{name} is not a setting and has no effect" for name in unknown))


def read_file(model: type[BaseModel], path: Path) -> Layer:
    """Return what the settings file says; nothing when there is no such file.

    Raises:
        SettingsError: it cannot be read, or is not a YAML mapping.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return Layer(str(path), {})
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    return parse_file(model, text, path)


def parse_file(model: type[BaseModel], text: str, path: Path) -> Layer:
    """Return what the text of a settings file says.

    Raises:
        SettingsError: it is not a YAML mapping.
    """
    try:
        data = load_yaml(text) or {}
    except yaml.YAMLError as error:
        message = f"{path} is not YAML: {yaml_problem(error)}"
        raise SettingsError(message, hint="correct that line, or move the file away") from error
    nested = (data.pop(NESTED, None) or {}) if isinstance(data, dict) else {}
    for where, value in ((str(path), data), (f"{path}: {NESTED}", nested)):
        if not isinstance(value, dict):
            raise SettingsError(f"{where} must be a mapping of settings, got {type(value).__name__}")
    merged = {key: value for key, value in deep_merge(nested, data).items() if value is not None}
    unknown = (f"{path}: {key} is not a setting and has no effect" for key in _unknown_keys(model, merged))
    return Layer(str(path), merged, warnings=tuple(unknown))


def keys_of(model: type[BaseModel]) -> Iterator[tuple[KeyPath, FieldInfo]]:
    """Yield the path of every setting."""
    for name, info in settings_of(model):
        if isinstance(info.default, BaseModel):
            yield from (((name, key), inner) for key, inner in type(info.default).model_fields.items())
        else:
            yield (name,), info


def settings_of(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """Yield the settings and sections of a model; what only an argument can say is none."""
    return ((name, info) for name, info in model.model_fields.items() if not info.exclude)


def _variables(path: KeyPath) -> tuple[str, ...]:
    """Return the variables that can set a value, the one that counts first."""
    spellings = ("__".join(path), "_".join(path)) if len(path) > 1 else (path[0], f"{NESTED}_{path[0]}")
    return tuple(f"{PREFIX}{spelling}".upper() for spelling in spellings)


def _parse(text: str, info: FieldInfo, variable: str) -> Any:
    if info.default is None and text.lower() in _NONE:
        return None
    if not isinstance(info.default, tuple):
        return text
    if not text.startswith("["):
        return [item.strip() for item in text.split(",") if item.strip()]
    try:
        return json.loads(text)
    except ValueError as error:
        hint = "or write the items with commas between them"
        raise SettingsError(f"{variable} is not a JSON list: {error}", hint=hint) from error


def _unknown_keys(model: type[BaseModel], values: Mapping[Any, Any]) -> list[str]:
    known = {".".join(path) for path, _ in keys_of(model)}
    sections = {path[0] for path, _ in keys_of(model) if len(path) > 1}
    unknown = []
    for key, value in values.items():
        if key in sections and isinstance(value, Mapping):
            unknown += [f"{key}.{inner}" for inner in value if f"{key}.{inner}" not in known]
        elif key not in sections and str(key) not in known:
            unknown.append(str(key))
    return unknown
