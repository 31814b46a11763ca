"""The configuration of the module: what holds for all servers, and where their entries come from."""

import asyncio
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amplifier_kit.config import LenientConfig, make_do
from amplifier_kit.tools.paths import WorkingDir, expand_home

MODULE_ID = "tool-mcp"

_REFERENCE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


@dataclass(frozen=True, slots=True)
class Limits:
    """What can be set for the module and, instead, for one server."""

    tool_prefix: str = "mcp_"
    start: str = "lazy"
    startup_timeout_s: float = 20.0
    start_limit_s: float = 120.0
    call_timeout_s: float = 60.0
    stop_timeout_s: float = 5.0
    max_restarts: int = 5
    restart_delay_s: float = 1.0
    restart_max_delay_s: float = 60.0
    max_content_size: int = 50_000
    max_image_bytes: int = 5 << 20
    max_tools: int = 128
    max_concurrent_calls: int = 8
    require_approval: bool = True

    @classmethod
    def read(cls, config: LenientConfig, given: Mapping[str, Any], default: "Limits") -> "Limits":
        """Read the keys; `given` is asked for a prefix that is empty and meant."""
        prefix = config.text("tool_prefix", default.tool_prefix)
        return cls(
            tool_prefix="" if given.get("tool_prefix") == "" else prefix,
            start=config.choice("start", default.start, ("lazy", "eager")),
            startup_timeout_s=config.number("startup_timeout", default.startup_timeout_s, minimum=0),
            start_limit_s=config.number("start_limit", default.start_limit_s, above=0),
            call_timeout_s=config.number("call_timeout", default.call_timeout_s, above=0),
            stop_timeout_s=config.number("stop_timeout", default.stop_timeout_s, above=0),
            max_restarts=config.integer("max_restarts", default.max_restarts, minimum=0),
            restart_delay_s=config.number("restart_delay", default.restart_delay_s, minimum=0),
            restart_max_delay_s=config.number("restart_max_delay", default.restart_max_delay_s, minimum=0),
            max_content_size=config.integer("max_content_size", default.max_content_size, minimum=1),
            max_image_bytes=config.integer("max_image_bytes", default.max_image_bytes, minimum=0),
            max_tools=config.integer("max_tools", default.max_tools, minimum=0),
            max_concurrent_calls=config.integer("max_concurrent_calls", default.max_concurrent_calls, minimum=1),
            require_approval=config.boolean("require_approval", default.require_approval, when_unusable=True),
        )


@dataclass(frozen=True, slots=True)
class ModuleSettings:
    """What the configuration says, the entries of servers as they were given."""

    limits: Limits
    verbose_servers: bool
    server_log_dir: Path | None
    working_dir: WorkingDir
    entries: Mapping[Any, Any]

    @classmethod
    async def read(cls, given: Mapping[str, Any] | None, coordinator: Any) -> "ModuleSettings":
        """Read the configuration; the file it names, if any, in a worker thread."""
        config = LenientConfig(MODULE_ID, given)
        working_dir = WorkingDir(config.text("working_dir", None), coordinator)
        log_dir = config.text("server_log_dir", None)
        file = config.text("config_file", None)
        from_file = await asyncio.to_thread(_read_file, working_dir.join(file)) if file else {}
        settings = cls(
            limits=Limits.read(config, given if isinstance(given, Mapping) else {}, Limits()),
            verbose_servers=config.boolean("verbose_servers", False),
            server_log_dir=expand_home(log_dir) if log_dir else None,
            working_dir=working_dir,
            entries={**from_file, **_servers(config)},
        )
        config.accept("visibility")
        config.warn_unknown()
        return settings


def _servers(config: LenientConfig) -> Mapping[Any, Any]:
    servers = config.raw("servers")
    if servers is None:
        return {}
    if isinstance(servers, Mapping):
        return servers
    kind = type(servers).__name__
    make_do(f"{MODULE_ID}: servers: it is a {kind}; expected a mapping of names to entries", level=logging.ERROR)
    return {}


def _read_file(path: Path) -> Mapping[str, Any]:
    """Return the entries of a file with the variables in them expanded; none when it cannot be used."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        problem = exc.strerror if isinstance(exc, OSError) else "it is not JSON"
        make_do(f"{MODULE_ID}: config_file: {path} cannot be read: {problem}", level=logging.ERROR)
        return {}
    servers = found.get("mcpServers") if isinstance(found, dict) else None
    if not isinstance(servers, dict):
        expected = '{"mcpServers": {name: entry}}'
        make_do(f"{MODULE_ID}: config_file: {path} does not have the form {expected}", level=logging.ERROR)
        return {}
    return {name: _expanded(entry) for name, entry in servers.items()}


def _expanded(value: Any) -> Any:
    """Replace `${VAR}` and `${VAR:-default}`; a reference to what is not set stays and counts as unset later."""
    if isinstance(value, str):
        return _REFERENCE.sub(_value, value)
    if isinstance(value, dict):
        return {key: _expanded(item) for key, item in value.items()}
    return [_expanded(item) for item in value] if isinstance(value, list) else value


def _value(reference: re.Match[str]) -> str:
    name, default = reference.groups()
    if default is None:
        return os.environ.get(name, reference[0])
    return os.environ.get(name) or default
