"""URLs as they may be stored and shown: without credentials."""

from __future__ import annotations

import re

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
    """Say whether the value of a query's name looks like something to keep to oneself."""
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
