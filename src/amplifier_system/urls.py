"""URLs as they may be stored and shown, without credentials; and the hosts that they name, public or private."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

HIDDEN = "***"
"""What stands in the place of a query's secret value."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^\s'\"<>`]*)")
_PAIR = re.compile(r"([?&;#])([^=?&;#]*)=([^&;#]+)")
_SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|pwd|auth|credential|signature|jwt|session|api[-_.]?key|access[-_.]?key"
    r"|private|(?:^|[-_.])(?:key|sig|pass|code)$",
    re.IGNORECASE,
)
_WITH_PASSWORD = re.compile(r"[^/@:\[\]]*:(?!\d*(?:[/?#]|$))")
_HOST = r"(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+)(?::\d*)?(?=[/?#]|$)"
_AT_HOST = re.compile(f"@(?={_HOST})")
_FULL_HOST = re.compile(
    r"(?:\[[0-9A-Fa-f:.%]+\]|localhost|\d+(?:\.\d+){3}|[A-Za-z0-9_.-]+\.[A-Za-z]{2,}|[A-Za-z0-9_-]+(?=:\d))(?::\d*)?(?=/)"
)


def shown(text: object) -> str:
    """Return a URL, a reference or a text that has some in it, as it may be stored and shown.

    What stands before a host is taken out, but for the name of an account over ssh, which is a part of the address;
    the values of a query's secret-looking names are hidden. A password in which a `/` or an `@` was not encoded is
    found all the same, as far as a host follows it.
    """
    return _URL.sub(_without_secrets, str(text))


def is_secret_name(name: str) -> bool:
    """True if the value of a query's name looks like something to keep to oneself."""
    return _SECRET_NAME.search(name) is not None


def _without_secrets(found: re.Match[str]) -> str:
    scheme, rest = found[1], found[2]
    end = _end_of_userinfo(rest)
    user = ""
    if end and scheme.lower().endswith("ssh"):
        name = rest[: end - 1].partition(":")[0]
        user = f"{name}@" if name and "/" not in name else ""
    location, ref = rest[end:], ""
    if scheme.lower().startswith("git"):  # the ref of a repository is behind its query
        location, mark, fragment = location.partition("#")
        path, at, ref = location.rpartition("@")
        location, ref = (path, f"@{ref}{mark}{fragment}") if at else (location, f"{mark}{fragment}")
    return f"{scheme}://{user}{_PAIR.sub(_without_value, location)}{_PAIR.sub(_without_value, ref)}"


def _without_value(pair: re.Match[str]) -> str:
    value = HIDDEN if is_secret_name(pair[2]) else pair[3]
    return f"{pair[1]}{pair[2]}={value}"


def _end_of_userinfo(rest: str) -> int:
    """Return where the host begins in what follows `://`."""
    authority = re.match(r"[^/?#]*", rest)
    before_path = authority[0] if authority else ""
    at = before_path.rfind("@") + 1
    has_password = _WITH_PASSWORD.match(rest) is not None
    if at and (not has_password or _FULL_HOST.match(rest, at)):
        return at
    if not has_password:
        return 0
    places = [match.end() for match in _AT_HOST.finditer(rest) if match.end() >= at]
    full = [place for place in places if _FULL_HOST.match(rest, place)]
    if at or full:
        return full[0] if full else at
    followed = [place for place in places if "/" in rest[place:]]
    return (followed or places or [rest.rfind("@") + 1])[-1]


# Which addresses belong to the public internet, and which host a piece of text means, however it is spelt.


Address = IPv4Address | IPv6Address

_GLOBAL_UNICAST = IPv6Network("2000::/3")
_PROTOCOL_ASSIGNMENTS = IPv4Network("192.0.0.0/24")  # of which Python counts a part as global
_NAT64 = IPv6Network("64:ff9b::/96")
_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MAX_NAME_CHARS = 253


def is_public(address: Address) -> bool:
    """True if an address is global unicast, also that of an IPv4 address carried inside."""
    if isinstance(address, IPv4Address):
        is_special = address.is_multicast or address.is_reserved or address in _PROTOCOL_ASSIGNMENTS
        return address.is_global and not is_special
    carried = _carried(address)
    if carried is not None:
        return is_public(carried)
    return address in _GLOBAL_UNICAST and address.is_global and not address.teredo


def is_loopback(host: str) -> bool:
    """True if a host is this machine and nothing that others can reach; a name other than `localhost` is not."""
    try:
        canonical = canonical_host(host.strip("[]"))
    except ValueError:
        return False
    return canonical == "localhost" or (_is_address(canonical) and ip_address(canonical).is_loopback)


def canonical_host(text: str) -> str:
    """Return the one spelling of a host: a name in lower case and ASCII, or an address; raises `ValueError`.

    An IPv4 address may be given in decimal, octal, hexadecimal or short form; one mapped into IPv6 is that address.
    """
    if ":" in text:
        address = IPv6Address(text)
        if address.scope_id:
            raise ValueError("an address with a zone")
        return str(address.ipv4_mapped or address)
    name = text.encode("idna").decode("ascii").lower().removesuffix(".")
    if len(name) > _MAX_NAME_CHARS or not _NAME.fullmatch(name):
        raise ValueError("not a host name")
    parts = name.split(".")
    return _ipv4(parts) if _NUMBER.fullmatch(parts[-1]) else name


def _is_address(canonical: str) -> bool:
    return ":" in canonical or canonical.rpartition(".")[2].isdigit()


def _carried(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that traffic to an IPv6 address finally reaches."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def _ipv4(parts: list[str]) -> str:
    if len(parts) > 4:
        raise ValueError("too many numbers for an address")
    *front, tail = map(_number, parts)
    if any(number > 0xFF for number in front) or tail >= 1 << 8 * (4 - len(front)):
        raise ValueError("a number is too large for an address")
    return str(IPv4Address(tail + sum(number << 8 * (3 - index) for index, number in enumerate(front))))


def _number(text: str) -> int:
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    return int(text, 8 if text.startswith("0") else 10)


def trust_for(url: str) -> ssl.SSLContext | bool:
    """Return what an HTTP client is to verify the server of a URL with: True stands for the system's certificates.

    Reading those takes tens of milliseconds. A client of a server that speaks plain HTTP is spared them; what it gets
    trusts no server.
    """
    import ssl  # takes long to load, and few commands need it

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.lower().startswith("http:") else True
