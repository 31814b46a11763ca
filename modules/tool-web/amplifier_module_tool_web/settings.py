"""The configuration of both tools."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amplifier_kit.config import ModuleConfig, make_do
from amplifier_kit.lenient_config import LenientConfig
from amplifier_kit.tools.paths import NOTHING, read_path_list

from .url_policy import UrlPolicy, domain_entry

logger = logging.getLogger(__name__)

MODULE_ID = "tool-web"
ENGINES = ("ddgs", "duckduckgo", "searxng", "mock")
BLOCKED_DOMAINS = ("localhost", "127.0.0.1", "0.0.0.0", "192.168.", "10.", "172.16.")

_STRICT_KEYS = ("search_timeout", "max_results", "search_engine")
_DEFAULT_LIMIT = 204_800
_MAX_DOWNLOAD_BYTES = 50 << 20
_USER_AGENT = "Amplifier/1.0"


@dataclass(frozen=True, slots=True)
class Settings:
    """What both tools go by. `allowed_write_paths` None stands for the working and the temporary directory."""

    timeout_s: float
    default_limit: int
    max_download_bytes: int
    policy: UrlPolicy
    extract_text: bool
    user_agent: str
    working_dir: str | None
    allowed_write_paths: Sequence[str] | None
    search_timeout_s: float
    max_results: int
    search_engine: str
    search_url: str | None
    api_key: str | None = field(repr=False)

    @classmethod
    def read(cls, given: Mapping[str, Any] | None) -> "Settings":
        """Read the configuration; raises `ValueError` for a search that could not be done as asked."""
        config = LenientConfig(MODULE_ID, given)
        strict = ModuleConfig(MODULE_ID, {key: config.raw(key) for key in _STRICT_KEYS})
        settings = cls(
            timeout_s=config.number("timeout", 10.0, above=0),
            default_limit=config.integer("default_limit", _DEFAULT_LIMIT, minimum=1),
            max_download_bytes=config.integer("max_download_bytes", _MAX_DOWNLOAD_BYTES, minimum=1),
            policy=_policy(config),
            extract_text=config.boolean("extract_text", True),
            user_agent=_user_agent(config),
            working_dir=config.text("working_dir", None),
            allowed_write_paths=read_path_list(config, "allowed_write_paths", None, when_unusable=NOTHING),
            search_timeout_s=strict.number("search_timeout", 10.0, above=0),
            max_results=strict.integer("max_results", 5, minimum=1, maximum=50),
            search_engine=strict.choice("search_engine", "ddgs", ENGINES),
            search_url=config.text("search_url", None),
            api_key=_api_key(config),
        )
        config.warn_unknown()
        return settings


def _policy(config: LenientConfig) -> UrlPolicy:
    blocked = _domains(config, "blocked_domains", when_unusable=BLOCKED_DOMAINS)
    allowed = _domains(config, "allowed_domains", when_unusable=("",))  # which matches no host: nothing is allowed
    guards = config.boolean("block_private_networks", blocked != (), when_unusable=True)
    if not guards:
        logger.warning("%s: private networks can be reached, no address is checked", MODULE_ID)
    return UrlPolicy(allowed or (), BLOCKED_DOMAINS if blocked is None else blocked, guards)


def _domains(config: LenientConfig, key: str, *, when_unusable: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return a list of domains, None when there is none; one string counts as a list of one."""
    value = config.raw(key)
    if value is None:
        return None
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, list | tuple) or not all(isinstance(entry, str) for entry in entries):
        return config.refuse(key, value, "a list of domains", when_unusable)
    return tuple(map(domain_entry, entries))


def _user_agent(config: LenientConfig) -> str:
    user_agent = config.text("user_agent", _USER_AGENT)
    if user_agent.isascii() and user_agent.isprintable():
        return user_agent
    return config.refuse("user_agent", user_agent, "printable ASCII", _USER_AGENT)


def _api_key(config: LenientConfig) -> str | None:
    key = config.raw("api_key")
    if key is None or (isinstance(key, str) and key.isascii() and key.isprintable()):
        return key
    make_do(f"{MODULE_ID}: config key 'api_key' cannot be sent, allowed: printable ASCII", "; it is not used")
    return None
