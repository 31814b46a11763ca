"""The settings: flags, the environment, `config/daemon.yaml` and defaults, in this order, read once into a value."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
)
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from .exceptions import InvalidSettingError
from .identifiers import ProfileId
from .issues import in_words
from .limits import Limits, no_boolean
from .settings_layers import Layer, keys_of, read_environment, read_file
from .store_address import StoreAddress

__all__ = [
    *("TOKEN_FORM", "TOKEN_ITEM", "UNIX"),
    *("Settings", "build_settings", "certificate_missing", "load_settings", "whole_settings"),
]

UNIX = "unix"
"""Stands in `trusted_proxies` for every program that can open the daemon's Unix socket."""

TOKEN_ITEM = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,63}):(?P<scope>read|run|admin):sha256:(?P<hash>[0-9a-f]{64})"
)
"""An item of `auth.tokens`."""

TOKEN_FORM = "name:scope:sha256:<hex>, the scope read, run or admin, the hash that of the token"

_LABEL = r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}"


def _off(value: Any) -> Any:
    return "off" if value is False else value  # what YAML makes of the plain word


def _profile_id(text: str) -> str:
    return str(ProfileId.parse(text))


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def _address(text: str) -> str:
    return text if "://" in text else _absolute(Path(text)).as_uri()


def _proxy(text: str) -> str:
    try:
        if text != UNIX:
            ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"must be an address, a network such as 10.0.0.0/8, or {UNIX}") from None
    return text


def _token(text: str) -> str:
    if TOKEN_ITEM.fullmatch(text) is None:
        raise ValueError(f"must be {TOKEN_FORM}")
    return text


def _labels(value: Any) -> Any:
    """Return labels that the environment has as JSON, or as `name=value` with commas between them."""
    if not isinstance(value, str):
        return value
    if value.startswith("{"):
        return json.loads(value)
    return dict(part.strip().split("=", 1) for part in value.split(",") if part.strip())


def _checked_labels(labels: dict[str, str]) -> dict[str, str]:
    if wrong := [name for name in labels if not re.fullmatch(_LABEL, name) or name == "shared_paths"]:
        raise ValueError(f"{', '.join(map(repr, wrong))} cannot be the name of a label")
    return labels


Whole = Annotated[int, BeforeValidator(no_boolean)]
AtLeastOne = Annotated[Whole, Field(ge=1)]
Seconds = Annotated[float, BeforeValidator(no_boolean), Field(gt=0)]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
Texts = tuple[str, ...]
Store = Annotated[
    StoreAddress, BeforeValidator(StoreAddress.parse), PlainSerializer(str), WithJsonSchema({"type": "string"})
]


class Section(BaseModel):
    """Settings that belong together."""

    model_config = ConfigDict(frozen=True, extra="ignore", validate_default=True)


class StartupSettings(Section):
    check_on_start: bool = Field(default=True, description="check at start which profiles are stale")
    update_on_start: bool = Field(default=False, description="sync the collections when the daemon has started")
    auto_compile: bool = Field(default=True, description="compile profiles that a sync changed or a plan needs")
    max_parallel_workers: Annotated[Whole, Field(ge=1, le=16)] = Field(
        default=4, description="how many collections to sync, and profiles to compile, at a time"
    )


class CompileSettings(Section):
    install_dependencies: Literal["auto", "never"] = Field(
        default="auto", description="whether to install what modules require: auto or never"
    )
    keep_going: bool = Field(
        default=False, description="build without providers, tools and hooks that cannot be fetched"
    )
    allow_builds: bool = Field(
        default=False, description="build dependencies that have no wheel, which runs their code"
    )
    timeout_seconds: Seconds = Field(default=600, description="time limit for one build")


class SourceSettings(Section):
    replace: Annotated[dict[str, Literal["installed"]], BeforeValidator(_labels)] = Field(
        default={},
        description="modules that are the installed ones on purpose, whatever source is named: {tool-web: installed}",
    )


class BuildSettings(Section):
    url: Annotated[str, AfterValidator(_address)] | None = Field(
        default=None,
        description="where to publish builds for other machines, any fsspec address: s3://bucket/builds, file:///mnt/builds",
    )
    max_bytes: AtLeastOne = Field(default=2147483648, description="largest build to fetch from there")


class CacheSettings(Section):
    keep_days: Annotated[float, Field(ge=0)] = Field(
        default=30, description="days that `amplifier source prune` keeps unused sources"
    )
    max_bytes: AtLeastOne | None = Field(
        default=None, description="above this size, that command also removes the oldest unused sources"
    )
    http_max_bytes: AtLeastOne = Field(default=52428800, description="largest single download")


class CheckpointSettings(Section):
    enabled: bool = Field(default=True, description="take a checkpoint of the working directory before each turn")
    max_files: AtLeastOne = Field(
        default=20000, description="with more files, only those that file tools touch are kept"
    )
    max_bytes: AtLeastOne = Field(default=524288000, description="the same for their total size")
    timeout_seconds: Seconds = Field(default=5, description="the same for the time it takes to read them")


class SessionSettings(Section):
    idle_unload_minutes: Annotated[float, BeforeValidator(no_boolean), Field(gt=0)] = Field(
        default=60, description="minutes until the modules of an idle session are unloaded"
    )
    max_loaded: AtLeastOne = Field(
        default=2000, description="sessions with loaded modules; with more, those idle longest are unloaded"
    )
    max_queue: AtLeastOne = Field(default=32, description="prompts that may wait while a turn runs")
    max_spawn_depth: AtLeastOne = Field(default=5, description="how deep agents may delegate")
    turn_timeout_seconds: Seconds | None = Field(default=None, description="time limit for a turn")
    retention_days: Annotated[float, BeforeValidator(no_boolean), Field(ge=0)] | None = Field(
        default=None, description="days until a running daemon, or a cleanup, removes ended sessions"
    )
    trash_days: Annotated[float, BeforeValidator(no_boolean), Field(ge=0)] = Field(
        default=30, description="days in which deleted sessions can be restored; 0 deletes permanently"
    )
    on_takeover: Literal["ask", "continue", "stop"] = Field(
        default="ask",
        description="what to do after a turn whose process died: ask (a person), continue or stop",
    )
    limits: Annotated[Limits | None, BeforeValidator(_json)] = Field(
        default=None,
        description="limits for a session and its sub-agents: cost_usd, total_tokens, tool_calls, turns, seconds",
    )


class RoutingSettings(Section):
    matrix: str | None = Field(default=None, description="routing matrix of sessions, instead of their profile's")
    overrides: Annotated[dict[str, Any] | None, BeforeValidator(_json)] = Field(
        default=None, description="by role: other candidates, as the routing module takes them"
    )


class StreamSettings(Section):
    queue_events: AtLeastOne = Field(default=10000, description="events to buffer for a slow client")
    queue_bytes: AtLeastOne = Field(default=8388608, description="the same for their total size")
    ring_events: AtLeastOne = Field(
        default=10000, description="latest events of a session to keep for clients that reconnect"
    )
    keepalive_seconds: Seconds = Field(default=15, description="how often to send a keepalive on a silent stream")


class WorkerSettings(Section):
    max_processes: AtLeastOne = Field(default=32, description="most worker processes")
    idle_minutes: Annotated[float, BeforeValidator(no_boolean), Field(gt=0)] = Field(
        default=15, description="minutes until a worker process without loaded sessions ends"
    )
    memory_limit_mb: AtLeastOne = Field(
        default=2048, description="a worker that uses more memory ends after its turns, at twice as much at once"
    )


class MentionSettings(Section):
    max_file_bytes: AtLeastOne = Field(default=1048576, description="largest file that a mention includes")
    max_total_bytes: AtLeastOne = Field(default=4194304, description="total size of the files that one text includes")
    max_files: AtLeastOne = Field(default=200, description="how many files one text includes")
    max_depth: AtLeastOne = Field(default=8, description="how deep mentions in mentioned files are followed")


class SecuritySettings(Section):
    allowed_hosts: Texts = Field(
        default=(), description="host names, besides its own, that clients may use for the daemon"
    )
    allowed_origins: Texts = Field(
        default=(), description="web pages, `scheme://host[:port]`, that may call the daemon from a browser"
    )
    allowed_sources: Texts = Field(default=("*",), description="patterns of the sources that profiles may use")
    require_pinned: bool = Field(default=False, description="refuse sources that can move, such as branches")
    module_roots: tuple[AbsolutePath, ...] = Field(
        default=(), description="directories, besides the home's builds, where a plan's modules may be"
    )
    allow_override_modules: bool = Field(default=False, description="requests may add modules and change their sources")
    allow_plan_sources: bool = Field(default=False, description="plans may name references that are fetched")
    allow_home_mentions: bool = Field(default=False, description="mentions may reach files below ~")


class AuthSettings(Section):
    mode: Literal["token", "proxy", "none"] = Field(
        default="token", description="how clients authenticate: token, proxy (a trusted proxy names the user) or none"
    )
    tokens: tuple[Annotated[str, AfterValidator(_token)], ...] = Field(
        default=(), description="tokens besides those of `amplifierd token`, each `name:scope:sha256:<hex>`"
    )


class TlsSettings(Section):
    mode: Annotated[Literal["off", "auto", "manual"], BeforeValidator(_off)] = Field(
        default="off", description="off, auto (a self-signed certificate) or manual (`tls.certfile`)"
    )
    certfile: AbsolutePath | None = Field(default=None, description="certificate for `manual`, PEM with its chain")
    keyfile: AbsolutePath | None = Field(default=None, description="its private key, PEM")


def _member_address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.path.strip("/"):
        raise ValueError("Input should be an address like http://10.0.0.5:8420")
    return f"{parts.scheme}://{parts.netloc}"


class ClusterSettings(Section):
    address: Annotated[str, AfterValidator(_member_address)] | None = Field(
        default=None, description="where daemons that share the store reach this one; unset: where it listens"
    )
    ca_file: AbsolutePath | None = Field(
        default=None, description="certificates, PEM, to verify other members that use TLS"
    )
    labels: Annotated[dict[str, str], BeforeValidator(_labels), AfterValidator(_checked_labels)] = Field(
        default={}, description="labels of this machine for others that share the store: pool=builders, and your own"
    )
    shared_paths: tuple[AbsolutePath, ...] = Field(
        default=(), description="directories that other machines have at the same path"
    )


class MetricsSettings(Section):
    enabled: bool = Field(default=False, description="serve `/api/v1/metrics`")


class Settings(BaseSettings):
    """What an owner of a home can set; frozen. `model_fields_set` has the keys that were set.

    A setting is here when something reads it. `warnings` names the keys that were given and mean nothing. One that is
    made by hand has what it is given and the defaults; `load_settings` reads the environment and a file.
    """

    model_config = SettingsConfigDict(frozen=True, extra="ignore", validate_default=True)

    home: AbsolutePath | None = Field(
        default=None, exclude=True, description="the home to serve with these settings; unset: AMPLIFIERD_HOME"
    )
    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: Annotated[Whole, Field(ge=0, le=65535)] = Field(
        default=8420, description="port to listen on; 0: any free one; unset: the first free one of ten"
    )
    uds: AbsolutePath | None = Field(default=None, description="Unix socket to listen on, instead of host and port")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="what the daemon logs: debug, info, warning or error"
    )
    log_json: bool = Field(default=False, description="write `daemon.log` as JSON lines")
    working_dir: AbsolutePath = Field(
        default=Path("~/amplifier"), description="working directory of sessions that name none; created on first use"
    )
    default_profile: Annotated[str, AfterValidator(_profile_id)] | None = Field(
        default=None,
        description="profile of sessions that name none; unset: foundation/base, or foundation/offline when none of "
        "its providers has a key",
    )
    offline: bool = Field(default=False, description="do not use the network")
    store: Store = Field(
        default=StoreAddress(),
        description="where sessions are kept: files, or postgresql://… for a database that machines share",
    )
    startup: StartupSettings = StartupSettings()
    compile: CompileSettings = CompileSettings()
    sources: SourceSettings = SourceSettings()
    builds: BuildSettings = BuildSettings()
    cache: CacheSettings = CacheSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    sessions: SessionSettings = SessionSettings()
    routing: RoutingSettings = RoutingSettings()
    stream: StreamSettings = StreamSettings()
    workers: WorkerSettings = WorkerSettings()
    mentions: MentionSettings = MentionSettings()
    security: SecuritySettings = SecuritySettings()
    auth: AuthSettings = AuthSettings()
    trusted_proxies: tuple[Annotated[str, AfterValidator(_proxy)], ...] = Field(
        default=(), description="addresses of proxies that may say who the client is"
    )
    tls: TlsSettings = TlsSettings()
    cluster: ClusterSettings = ClusterSettings()
    metrics: MetricsSettings = MetricsSettings()

    _warnings: tuple[str, ...] = PrivateAttr(())

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._warnings

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def load_settings(
    file: Path, *, overrides: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings that hold: `overrides` (flags) before the environment before `file` before defaults.

    Raises:
        SettingsError: a value is invalid; the message names its key and where it was found.
    """
    variables = os.environ if environ is None else environ
    return whole_settings(overrides or {}, read_environment(Settings, variables), read_file(Settings, file))


def whole_settings(overrides: Mapping[str, Any], *layers: Layer) -> Settings:
    """Return the settings of all origins, the first counting most; they have to fit together.

    Raises:
        InvalidSettingError: a value is invalid, or cannot be used without another one.
    """
    settings = build_settings(overrides, *layers)
    if settings.tls.mode == "manual" and None in (settings.tls.certfile, settings.tls.keyfile):
        raise certificate_missing()
    return settings


def certificate_missing() -> InvalidSettingError:
    """Return the error for TLS with a certificate that is not named."""
    message = "tls.mode is manual, but tls.certfile or tls.keyfile is not set"
    return InvalidSettingError(message, hint="set both, or another tls.mode")


def build_settings(overrides: Mapping[str, Any], *layers: Layer) -> Settings:
    """Return the settings of several origins, the first counting most.

    Raises:
        InvalidSettingError: a value is invalid.
    """
    layers = (Layer("argument", overrides), *layers)
    sources = tuple(InitSettingsSource(Settings, dict(layer.values)) for layer in layers)
    try:
        settings = Settings(_build_sources=(sources, {}))  # type: ignore[call-arg] # seen by pydantic, not by mypy
    except ValidationError as error:
        text = "\n".join(_describe(problem, layers) for problem in error.errors())
        raise InvalidSettingError(text, hint="correct the value, or remove it to use the default") from error
    settings._warnings = tuple(warning for layer in layers for warning in layer.warnings)
    return settings


def _describe(problem: Mapping[str, Any], layers: Sequence[Layer]) -> str:
    path = tuple(str(part) for part in problem["loc"])
    key = path[:2] if path[0] in Settings.model_fields and ".".join(path[:2]) in _KEYS else path[:1]
    place = next((place for layer in layers if (place := layer.find_place(key))), "settings")
    given = "" if path[: len(key)] in _SECRET else f", got {problem['input']!r}"
    return f"{place}: {'.'.join(path)}: {in_words(problem)}{given}"


_SECRET = (("store",), ("auth", "tokens"))  # what was given may have a password in it
_KEYS = frozenset(".".join(path) for path, _ in keys_of(Settings))
