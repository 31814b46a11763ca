"""The configuration of both tools."""

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any
from urllib.parse import urlsplit

from amplifier_kit.config import LenientConfig, ModuleConfig, make_do
from amplifier_kit.policy import canonical_host
from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.paths import NOTHING, read_path_list

# Which URLs may be fetched, as far as their text can tell; where a name leads is checked when it is connected to.


MAX_URL_CHARS = 8192

_CREDENTIALS = re.compile(r"^((?:[a-z][a-z0-9+.-]*:)?[/\\]*)[^/\\?#]*@", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that may be fetched: `text` is what is requested, with the host in its one spelling and no fragment."""

    text: str
    scheme: str
    host: str


@dataclass(frozen=True, slots=True)
class UrlPolicy:
    """Which hosts may be reached; no allowed domain stands for any."""

    allowed_domains: tuple[str, ...]
    blocked_domains: tuple[str, ...]
    guards_private_networks: bool

    def check(self, url: str, *, https_only: bool = False) -> Target:
        """Return the target of a URL; raises `ToolFailure` when it may not be fetched."""
        try:
            target = _parse(url)
        except ValueError as exc:
            raise blocked(url, str(exc)) from None
        if https_only and target.scheme != "https":
            raise blocked(url, "it leads from https to http")
        if any(_is_blocked_by(entry, target.host) for entry in self.blocked_domains):
            raise blocked(url, "its host is blocked")
        if self.allowed_domains and not any(_is_at(entry, target.host) for entry in self.allowed_domains):
            raise blocked(url, "its host is not among the allowed ones")
        return target

    def must_be_public(self, host: str) -> bool:
        """True if all addresses of a host have to be public ones."""
        return self.guards_private_networks and host not in self.allowed_domains


def blocked(url: str, reason: str) -> ToolFailure:
    """Return the failure for a URL that may not be fetched."""
    return ToolFailure(f"Invalid or blocked URL: {shown_url(url)}", "blocked_url", reason=reason, retryable=False)


def shown_url(url: str) -> str:
    """Return a URL as it may be shown: without credentials, and as valid text."""
    return _CREDENTIALS.sub(r"\1", url)[:MAX_URL_CHARS].encode("utf-8", "replace").decode()


def source_id(url: str) -> str:
    """Return the short name of a source."""
    return f"web-{hashlib.sha256(url.encode('utf-8', 'replace')).hexdigest()[:16]}"


def domain_entry(text: str) -> str:
    """Return an entry of a list of domains in the spelling that hosts have; what is not a host matches only itself."""
    entry = text.strip().lower().removeprefix("*").lstrip(".")
    if _is_number_prefix(entry):
        return entry
    try:
        return canonical_host(entry.removeprefix("[").removesuffix("]"))
    except ValueError:
        return entry


def _parse(url: str) -> Target:
    if len(url) > MAX_URL_CHARS:
        raise ValueError("it is too long")
    if _CONTROL.search(url) or not _is_text(url):
        raise ValueError("it contains control characters")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError("its scheme is not http or https")
    if "@" in parts.netloc:
        raise ValueError("it contains credentials")
    if not parts.hostname:
        raise ValueError("it names no host")
    host = canonical_host(parts.hostname)
    if parts.port == 0:
        raise ValueError("its port cannot be connected to")
    authority = f"[{host}]" if ":" in host else host
    port = "" if parts.port is None else f":{parts.port}"
    query = f"?{parts.query}" if parts.query else ""
    return Target(f"{parts.scheme}://{authority}{port}{parts.path}{query}", parts.scheme, host)


def _is_text(url: str) -> bool:
    try:
        url.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_at(entry: str, host: str) -> bool:
    return host == entry or host.endswith(f".{entry}")


def _is_blocked_by(entry: str, host: str) -> bool:
    if _is_number_prefix(entry):
        return _is_ipv4(host) and host.startswith(entry)
    return _is_at(entry, host)


def _is_number_prefix(entry: str) -> bool:
    return entry.endswith(".") and entry.replace(".", "").isdecimal()


def _is_ipv4(host: str) -> bool:
    try:
        IPv4Address(host)
    except ValueError:
        return False
    return True


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
