"""The settings: flags, the environment, `config/daemon.yaml` and defaults, in this order, read once into a value."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, SettingsConfigDict

from .exceptions import SettingsError
from .settings_layers import Layer, keys_of, read_environment, read_file

__all__ = ["RESTART_KEYS", "Settings", "build_settings", "load_settings"]


def _no_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("Input should be a number")  # noqa: TRY004 - pydantic turns only ValueError into an issue
    return value


def _off(value: Any) -> Any:
    return "off" if value is False else value  # YAML reads a bare `off` as a boolean


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


Whole = Annotated[int, BeforeValidator(_no_boolean)]
Count = Annotated[Whole, Field(ge=0)]
AtLeastOne = Annotated[Whole, Field(ge=1)]
Seconds = Annotated[float, BeforeValidator(_no_boolean), Field(gt=0)]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
Texts = tuple[str, ...]


class Section(BaseModel):
    """Settings that belong together."""

    model_config = ConfigDict(frozen=True, extra="ignore", validate_default=True)


class StartupSettings(Section):
    check_on_start: bool = Field(default=True, description="say which profiles are stale, without using the network")
    update_on_start: bool = Field(default=False, description="sync the collections in the background")
    auto_compile: bool = Field(default=True, description="compile what a sync changed")
    max_parallel_workers: Annotated[Whole, Field(ge=1, le=16)] = Field(
        default=4, description="collections synced at a time"
    )


class CompileSettings(Section):
    install_dependencies: Literal["auto", "never"] = Field(
        default="auto", description="what modules require: auto or never"
    )
    keep_going: bool = Field(
        default=False, description="build without the providers, tools and hooks that cannot be obtained"
    )
    timeout_seconds: Seconds = Field(default=600, description="for one build")


class CacheSettings(Section):
    keep_days: Count = Field(default=30, description="prune keeps what was used within so many days")
    max_bytes: AtLeastOne | None = Field(default=None, description="size above which prune removes the oldest entries")
    http_max_bytes: AtLeastOne = Field(default=52428800, description="largest single download")


class SessionSettings(Section):
    idle_unload_minutes: AtLeastOne = Field(default=60, description="a session idle for so long leaves memory")
    max_loaded: AtLeastOne = Field(default=2000, description="sessions in memory")
    max_queue: Count = Field(default=32, description="turns that may wait in one session")
    max_spawn_depth: Count = Field(default=5, description="how deep agents may start agents")
    turn_timeout_seconds: Seconds | None = Field(default=None, description="for one turn")
    retention_days: AtLeastOne | None = Field(default=None, description="ended sessions are deleted after so many days")


class StreamSettings(Section):
    queue_events: AtLeastOne = Field(default=10000, description="events that wait for one slow client")
    queue_bytes: AtLeastOne = Field(default=8388608, description="bytes that wait for one slow client")
    ring_events: AtLeastOne = Field(default=10000, description="events kept for clients that reconnect")
    keepalive_seconds: Seconds = Field(default=15, description="between signs of life on a quiet stream")


class MentionSettings(Section):
    max_file_bytes: AtLeastOne = Field(default=1048576, description="largest file a mention brings in")
    max_total_bytes: AtLeastOne = Field(default=4194304, description="all files of one text together")
    max_files: AtLeastOne = Field(default=200, description="files of one text")
    max_depth: AtLeastOne = Field(default=8, description="mentions inside mentioned files")


class StoredToken(Section):
    """A named token, kept as a hash."""

    name: str
    hash: str
    scopes: tuple[Literal["read", "run", "admin"], ...] = ("read", "run", "admin")


class AuthSettings(Section):
    mode: Literal["token", "proxy", "none"] = Field(default="token", description="who may call: token, proxy or none")
    tokens: tuple[StoredToken, ...] = Field(
        default=(), description="named tokens, written by `amplifierd token create`"
    )


class SecuritySettings(Section):
    allowed_hosts: Texts = Field(default=(), description="names this server goes by, beside loopback")
    allowed_origins: Texts = Field(default=(), description="web pages that may call, as scheme://host[:port]")
    allowed_sources: Texts = Field(default=("*",), description="patterns of the sources that profiles may use")
    require_pinned: bool = Field(default=False, description="refuse sources that can move, such as branches")
    module_roots: tuple[AbsolutePath, ...] = Field(default=(), description="directories that local modules must lie in")
    allow_override_modules: bool = Field(default=False, description="requests may add modules and change their sources")
    allow_plan_sources: bool = Field(default=False, description="requests may bring plans with sources of their own")
    allow_home_mentions: bool = Field(default=False, description="a mention may read from the home directory")


class TlsSettings(Section):
    mode: Annotated[Literal["off", "auto", "manual"], BeforeValidator(_off)] = Field(
        default="off", description="off, auto (own certificate) or manual"
    )
    certfile: AbsolutePath | None = Field(default=None, description="certificate, for manual")
    keyfile: AbsolutePath | None = Field(default=None, description="its key, for manual")


class MetricsSettings(Section):
    enabled: bool = Field(default=False, description="serve /metrics")


class Settings(BaseSettings):
    """What an owner of a home can set; frozen. `model_fields_set` has the keys that were set.

    `warnings` names the keys that were given and mean nothing.
    """

    model_config = SettingsConfigDict(frozen=True, extra="ignore", validate_default=True)

    host: str = Field(default="127.0.0.1", min_length=1, description="address to listen on")
    port: Annotated[Whole, Field(ge=0, le=65535)] = Field(default=8420, description="0 takes any free one")
    uds: AbsolutePath | None = Field(default=None, description="a Unix socket to listen on instead")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug, info, warning or error"
    )
    log_json: bool = Field(default=False, description="one JSON object per line")
    working_dir: AbsolutePath = Field(
        default=Path("~/amplifier"), description="where sessions work that name no directory"
    )
    default_profile: str = Field(
        default="foundation/base",
        description="of sessions that name none; foundation/offline when no provider has a key",
    )
    offline: bool = Field(default=False, description="no network at all")
    trusted_proxies: Texts = Field(default=(), description="addresses whose forwarding headers count")
    startup: StartupSettings = StartupSettings()
    compile: CompileSettings = CompileSettings()
    cache: CacheSettings = CacheSettings()
    sessions: SessionSettings = SessionSettings()
    stream: StreamSettings = StreamSettings()
    mentions: MentionSettings = MentionSettings()
    auth: AuthSettings = AuthSettings()
    security: SecuritySettings = SecuritySettings()
    tls: TlsSettings = TlsSettings()
    metrics: MetricsSettings = MetricsSettings()

    _warnings: tuple[str, ...] = PrivateAttr(())

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._warnings


RESTART_KEYS = frozenset(
    {
        *("host", "port", "uds", "trusted_proxies", "auth.mode", "auth.tokens"),
        *("tls.mode", "tls.certfile", "tls.keyfile", "metrics.enabled"),
    }
)
"""Settings that a running server reads only when it starts."""


def load_settings(
    file: Path, *, overrides: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings that hold: `overrides` (flags) before the environment before `file` before defaults.

    Raises:
        SettingsError: a value is invalid; the message names its key and where it was found.
    """
    variables = os.environ if environ is None else environ
    return build_settings(overrides or {}, read_environment(Settings, variables), read_file(Settings, file))


def build_settings(overrides: Mapping[str, Any], *layers: Layer) -> Settings:
    """Return the settings of several origins, the first counting most.

    Raises:
        SettingsError: a value is invalid.
    """
    layers = (Layer("argument", overrides), *layers)
    sources = tuple(InitSettingsSource(Settings, dict(layer.values)) for layer in layers)
    try:
        settings = Settings(_build_sources=(sources, {}))  # type: ignore[call-arg] # seen by pydantic, not by mypy
    except ValidationError as error:
        raise SettingsError("\n".join(_describe(problem, layers) for problem in error.errors())) from error
    settings._warnings = tuple(warning for layer in layers for warning in layer.warnings)
    return settings


def _describe(problem: Mapping[str, Any], layers: Sequence[Layer]) -> str:
    path = tuple(str(part) for part in problem["loc"])
    key = path[:2] if path[0] in Settings.model_fields and ".".join(path[:2]) in _KEYS else path[:1]
    place = next((place for layer in layers if (place := layer.find_place(key))), "settings")
    return f"{place}: {'.'.join(path)}: {problem['msg']}, got {problem['input']!r}"


_KEYS = frozenset(".".join(path) for path, _ in keys_of(Settings))
