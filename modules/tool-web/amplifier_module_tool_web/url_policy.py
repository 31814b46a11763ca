"""Which URLs may be fetched, as far as their text can tell; where a name leads is checked when it is connected to."""

import hashlib
import re
from dataclasses import dataclass
from ipaddress import IPv4Address
from urllib.parse import urlsplit

from amplifier_kit.policy import canonical_host
from amplifier_kit.tools.input import ToolFailure

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
        """Say whether all addresses of a host have to be public ones."""
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
