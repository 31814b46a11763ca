"""What the headers of an answer tell about the limits of the account."""

from collections.abc import Iterable, Mapping

from amplifier_kit.types import JsonObject

_PARTS = ("limit", "remaining", "reset")


def read_rate_limits(headers: Mapping[str, str], name: str, kinds: Iterable[str]) -> JsonObject:
    """Return `{requests_limit: 50, …}` for what is limited; `name` is a header's, with `{kind}` and `{part}` in it.

    Numbers that cannot be read are left out; when a limit is reset stays a text.
    """
    limits: JsonObject = {}
    for kind in kinds:
        for part in _PARTS:
            given = headers.get(name.format(kind=kind, part=part))
            if given is not None and (part == "reset" or given.strip().isdecimal()):
                limits[f"{kind.replace('-', '_')}_{part}"] = given if part == "reset" else int(given)
    return limits
