"""Which addresses belong to the public internet, and which host a piece of text means, however it is spelt."""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address

_GLOBAL_UNICAST = IPv6Network("2000::/3")
_PROTOCOL_ASSIGNMENTS = IPv4Network("192.0.0.0/24")  # of which Python counts a part as global
_NAT64 = IPv6Network("64:ff9b::/96")
_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MAX_NAME_CHARS = 253


def is_public(address: Address) -> bool:
    """Say whether an address is global unicast, also that of an IPv4 address carried inside."""
    if isinstance(address, IPv4Address):
        is_special = address.is_multicast or address.is_reserved or address in _PROTOCOL_ASSIGNMENTS
        return address.is_global and not is_special
    carried = _carried(address)
    if carried is not None:
        return is_public(carried)
    return address in _GLOBAL_UNICAST and address.is_global and not address.teredo


def is_loopback(host: str) -> bool:
    """Say whether a host is this machine and nothing that others can reach; a name other than `localhost` is not."""
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
