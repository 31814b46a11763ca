"""The command's own settings: flags, the environment and three files, merged into one value that knows its origins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from amplifier_cli.terminal.render import How
from amplifier_foundation.io import load_yaml, yaml_problem
from amplifier_system.near_names import did_you_mean
from amplifier_system.permission_levels import PermissionLevel, is_level, narrowest
from amplifierd.exceptions import SettingsError
from amplifierd.issues import in_words
from amplifierd.paths import Paths
from amplifierd.trust import Trust
from amplifierd.yaml_edits import edited, replace_text

from .failures import UsageError

PREFIX = "AMPLIFIER_"
PROJECT_DIR = ".amplifier"

Layer = Literal["flag", "environment", "local", "project", "user", "default"]
LAYERS: tuple[Layer, ...] = ("flag", "environment", "local", "project", "user", "default")
"""Where a value can come from; the first that has one counts."""


class AppConfig(BaseModel):
    """What can be set; frozen. What the daemon shares with the command is in `daemon.yaml` instead."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: str | None = Field(default=None, description="the profile of new sessions")
    bundle: str | None = Field(default=None, description="the bundle of new sessions, instead of a profile")
    provider: str | None = Field(default=None, description="which of the profile's providers to use")
    model: str | None = Field(default=None, description="the model of that provider")
    effort: str | None = Field(default=None, description="how hard the model thinks: low, medium, high, …")
    max_iterations: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="limit on model calls per turn"
    )
    max_cost: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="spending limit in dollars for a session and its sub-agents"
    )
    permissions: PermissionLevel | None = Field(
        default=None, description="what the agent may do without asking: plan, ask, edits or auto"
    )
    offline: bool | None = Field(
        default=None, description="do not use the network for collections, profiles and bundles"
    )
    show_thinking: bool = Field(default=True, description="show the model's thinking, in one line")
    bell_after: Annotated[float, Field(ge=0)] = Field(
        default=20, description="notify you when a turn of at least this many seconds ends; 0: never"
    )
    notify: How = Field(default="bell", description="how to notify you, also when the agent waits: bell, desktop, none")


@dataclass(frozen=True)
class Setting:
    """A key with the value that counts; `overrode` are the layers whose value does not."""

    key: str
    value: Any
    layer: Layer
    place: str
    overrode: tuple[Layer, ...] = ()


@dataclass(frozen=True)
class SettingsFiles:
    """The three files, by their layer; `project_dir` is the directory whose `.amplifier` holds two of them.

    Beside these, it may hold an overlay for all agents, overlays for profiles, and commands of a chat.
    """

    user: Path
    project: Path
    local: Path
    project_dir: Path

    @property
    def folder(self) -> Path:
        return self.project.parent

    @property
    def overlay(self) -> Path:
        return self.folder / "overlay.md"

    @property
    def overlays(self) -> Path:
        return self.folder / "overlays"

    @property
    def commands(self) -> Path:
        return self.folder / "commands"

    def of_project(self) -> tuple[Path, ...]:
        """Return the files with which the project has a say in what happens."""
        single = (file for file in (self.local, self.project, self.overlay) if file.is_file())
        return (*single, *sorted(self.overlays.glob("*/*.md")), *sorted(self.commands.glob("*.md")))

    @classmethod
    def of(cls, paths: Paths, working_dir: Path) -> SettingsFiles:
        project_dir = find_project_dir(working_dir)
        folder = project_dir / PROJECT_DIR
        user = paths.config / "settings.yaml"
        return cls(user, folder / "settings.yaml", folder / "settings.local.yaml", project_dir)

    def at(self, layer: Layer) -> Path:
        return {"user": self.user, "project": self.project, "local": self.local}[layer]


@dataclass(frozen=True)
class ResolvedConfig:
    """The settings that hold, with the origin of each. `ignored` are files of a directory that is not trusted."""

    values: AppConfig
    settings: tuple[Setting, ...]
    files: SettingsFiles
    warnings: tuple[str, ...] = ()
    ignored: tuple[Path, ...] = ()
    is_trusted: bool = False

    def setting(self, key: str) -> Setting:
        return next(setting for setting in self.settings if setting.key == key)

    def source(self) -> dict[str, str]:
        """Return the profile or the bundle of new sessions: of both, the one from the stronger layer."""
        named = [self.setting(key) for key in ("profile", "bundle") if getattr(self.values, key)]
        strongest = sorted(named, key=lambda setting: LAYERS.index(setting.layer))
        return {strongest[0].key: str(strongest[0].value)} if strongest else {}


def resolve_app_config(
    flags: Mapping[str, Any] | None = None,
    *,
    home: Path | None = None,
    working_dir: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> ResolvedConfig:
    """Return the settings that hold: flags, then the environment, then local, project and user file, then defaults.

    The files of a project count once its directory is trusted, and as long as they are what was trusted.

    Raises:
        SettingsError: a file cannot be read, or a value is invalid; the message names the place and the key.
    """
    environ = os.environ if environ is None else environ
    paths = Paths.from_environment(home, environ)
    files = SettingsFiles.of(paths, working_dir or Path.cwd())
    trust = Trust(paths)
    is_trusted = (
        files.project_dir.exists() and trust.contains(files.project_dir) and trust.is_unchanged(files.project_dir)
    )
    layers: dict[Layer, dict[str, Any]] = {
        "flag": {key: value for key, value in (flags or {}).items() if value is not None},
        "environment": _from_environment(environ),
        "local": stored_settings(files.local) if is_trusted else {},
        "project": stored_settings(files.project) if is_trusted else {},
        "user": stored_settings(files.user),
    }
    warnings = [w for layer in ("local", "project", "user") for w in _unknown(layers[layer], files.at(layer))]
    settings = tuple(_setting(key, layers, files) for key in AppConfig.model_fields)
    values = _validated(settings)
    ignored = () if is_trusted else files.of_project()
    return ResolvedConfig(values, settings, files, tuple(warnings), ignored, is_trusted)


def find_project_dir(working_dir: Path) -> Path:
    """Return the directory that a working directory's settings belong to.

    It is the nearest with a `.amplifier` in it, up to the root of the repository, which else is the one. The user's
    home directory and those above it never are: what is in `~/.amplifier` belongs to other applications.
    """
    start = Path(os.path.realpath(working_dir))
    own = Path(os.path.realpath(Path.home()))
    for directory in (start, *start.parents):
        if own.is_relative_to(directory) or directory == Path(directory.anchor):
            break
        if (directory / PROJECT_DIR).is_dir() or (directory / ".git").exists():
            return directory
    return start


def checked_key(key: str) -> str:
    """Return the name of a setting.

    Raises:
        SettingsError: there is none of that name.
    """
    name = key.replace("-", "_")
    if name in AppConfig.model_fields:
        return name
    hint = did_you_mean(name, AppConfig.model_fields) or f"these exist: {', '.join(AppConfig.model_fields)}"
    raise SettingsError(f"there is no setting {key!r}", hint=hint)


def checked_value(key: str, text: str) -> Any:
    """Return the value that a text means for a setting.

    Raises:
        SettingsError: it is not one.
    """
    value = load_yaml(text) if AppConfig.model_fields[key].annotation is not str | None else text
    return getattr(_validated((Setting(key, value, "flag", ""),)), key)


def variable_of(key: str) -> str:
    return f"{PREFIX}{key.upper()}"


def stored_settings(path: Path) -> dict[str, Any]:
    """Return what a file of settings holds.

    Raises:
        SettingsError: it cannot be read.
    """
    try:
        data = load_yaml(path.read_text(encoding="utf-8-sig")) or {}
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}", hint="make it readable, or remove it") from error
    except yaml.YAMLError as error:
        message = f"{path} is not YAML: {yaml_problem(error)}"
        raise SettingsError(message, hint="correct that line, or remove the file") from error
    if not isinstance(data, dict):
        raise SettingsError(f"{path}: a mapping of settings is expected", hint="write one as: profile: foundation/base")
    return {str(key): value for key, value in data.items() if value is not None}


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found = {key: environ.get(variable_of(key), "").strip() for key in AppConfig.model_fields}
    return {key: value for key, value in found.items() if value}


def _unknown(values: Mapping[str, Any], path: Path) -> list[str]:
    unknown = [key for key in values if key not in AppConfig.model_fields]
    data = {key: did_you_mean(key, AppConfig.model_fields) for key in unknown}
    return [
        f"{path}: {key} is not a setting and has no effect{'; ' + hint if hint else ''}" for key, hint in data.items()
    ]


def _setting(key: str, layers: Mapping[Layer, Mapping[str, Any]], files: SettingsFiles) -> Setting:
    having = [layer for layer in LAYERS if layer in layers and key in layers[layer]]
    if key == "permissions":
        having = [layer for layer in having if layer not in ("local", "project") or _narrows(layers, layer)]
    if not having:
        return Setting(key, AppConfig.model_fields[key].default, "default", "")
    places = {"flag": f"--{key.replace('_', '-')}", "environment": variable_of(key)}
    place = places.get(having[0]) or str(files.at(having[0]))
    return Setting(key, layers[having[0]][key], having[0], place, tuple(having[1:]))


def _narrows(layers: Mapping[Layer, Mapping[str, Any]], layer: Layer) -> bool:
    """True where a project's permission level allows no more than the person's own; one that is none is an error."""
    value, own = layers[layer]["permissions"], layers["user"].get("permissions")
    return not is_level(value) or narrowest(value, own if is_level(own) else None) == value


def _validated(settings: tuple[Setting, ...]) -> AppConfig:
    try:
        return AppConfig.model_validate({setting.key: setting.value for setting in settings})
    except ValidationError as error:
        places = {setting.key: f"{setting.place}: " if setting.place else "" for setting in settings}
        problems = [(str(problem["loc"][0]), problem) for problem in error.errors()]
        text = "\n".join(
            f"{places[key]}{key}: {in_words(problem)}, got {problem['input']!r}" for key, problem in problems
        )
        raise SettingsError(text, hint="correct the value; amplifier config list shows what is set where") from error


# Changing the files of the command's settings.


Project = Annotated[bool, typer.Option("--project", help="Use the project's shared settings file.")]
Local = Annotated[bool, typer.Option("--local", help="Use the project's settings.local.yaml, for you alone.")]


def chosen_layer(*, project: bool, local: bool) -> Layer:
    """Return the file that two flags choose: the user's without either.

    Raises:
        UsageError: both are set.
    """
    if project and local:
        raise UsageError("--project and --local name different files", hint="use one of them")
    return "project" if project else "local" if local else "user"


def store_settings(file: Path, changes: Mapping[str, Any]) -> None:
    """Set values in a file, and take out those that are None; comments and order stay."""

    def change(document: Any) -> None:
        for key, value in changes.items():
            if value is None:
                document.pop(key, None)
            else:
                document[key] = value

    before = file.read_text(encoding="utf-8-sig") if file.exists() else ""
    replace_text(file, edited(before, change))
