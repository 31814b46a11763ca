"""Secrets that are known by their name: what is assigned to a key, a token, a secret or a password."""

import re
from collections.abc import Iterator

from .patterns import SensitivePattern, Span
from .secret_tokens import looks_random

# The part of a name that suggests a secret, anywhere in the name; tokenizers and secretaries do not count.
_TELLING = (
    r"[AaSsTtPp](?i:(?<=a)(?:pi[ _-]?|ccess[_-]?|ccount[_-]?)key|(?<=s)ecret(?!ar)|(?<=t)oken(?!i[sz])"
    r"|(?<=p)ass(?:word|wd|phrase))"
)
# Words that tell of a secret only at the end of a name: db_pass, MYSQL_PWD, signingKey.
_ENDING = r"[KkPp](?:(?<=[A-Za-z0-9][_.-].)|(?<=[a-z][KP])|(?<=;[Pp]))(?i:(?<=k)ey|(?<=p)ass|(?<=p)wd)(?![A-Za-z0-9])"
_HINTS = ("key", "secret", "token", "pass", "pwd")
_VALUE = (
    r'"(?P<double_quoted>(?:[^"\\\n]|\\.){8,}+)'
    r"|'(?P<single_quoted>(?:[^'\\\n]|\\.){8,}+)"
    r"""|\\{1,8}["'](?P<quoted_in_json>[^"'\\\n]{8,}+)"""
    r"""|(?P<bare>[^\s\x00-\x1f"'`\\,;&<>|(){}\[\]]{8,}+)"""
)
_ASSIGNMENT = re.compile(
    rf"(?:(?P<telling>{_TELLING})(?P<tail>[\w.-]{{0,40}}+)|(?P<ending>{_ENDING}))"
    r"""(?P<sign>(?:\\{0,8}["'`]\]?)?\s{0,8}+(?::=|=>|[:=])\s{0,8}+)"""
    f"(?:{_VALUE})"
)
_VALUE_GROUPS = ("double_quoted", "single_quoted", "quoted_in_json", "bare")

_NUMBER_OR_DATE = re.compile(r"[\dTZ\s.,:+_%/-]*")
# What follows the telling word and makes the name that of something else: token_count, secret_name, password_policy.
_HARMLESS_TAIL = re.compile(
    r"(?i)s?(?:[_.-][a-z]+){0,3}[_.-]?(?:algorithm|alias|arn|attempts?|budget|bucket|class|columns?|count|counter|dir|encoding|endpoint|env|"
    r"errors?|events?|exists|expiry|expires\w*|expires?[_-]?(?:at|in)|factory|fields?|file(?:name)?|format|handler|header|"
    r"helpers?|hint|input|issuer|kind|label|length|lifetime|limits?|list|location|manager|max|message|min|mode|model|name|"
    r"param(?:eter)?s?|parser|path|policy|prefix|prompt|providers?|ref|regex|required|reset|rotation|rules?|scheme|scopes?|"
    r"server|service|size|source|status|store|strategy|style|suffix|template|title|ttl|types?|uri|url|usage|used|"
    r"validator|vault|version|window|md|py|txt|json|ya?ml|toml|js|ts|go|rs|sh)"
)
_HARMLESS_KEY = re.compile(
    r"(?i)(?:cache|column|composite|config|dedup|dict|external|field|foreign|group|grouping|hash|header|idempotency|index|"
    r"join|json|lookup|map|memo|metadata|natural|object|order|partition|primary|public|range|registry|row|s3|section|"
    r"settings?|shard|sort|sorting|state|storage|surrogate|translation|unique)[_.-]?\Z"
)
# A value that only says where the secret is: a variable, a call, an attribute, a type, a place.
_PLACEHOLDER = re.compile(r"\$|%\(|\{\{?\s?[\w.]|<[\w -]+>|\[REDACTED|\*{4}|\.{3}|[xX]{4}")
_REFERENCE = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z|(?i:https?|file|vault|env|secret|arn|git\+\w+)://?|~?/[\w.-]+/|\.{1,2}/"
)
_IDENTIFIER = re.compile(r"[A-Za-z_]+")
_CLASS_NAME = re.compile(r"(?:[A-Z][a-z]+){2,}")
_WORDS = re.compile(r"[A-Za-z]+(?:[_-][A-Za-z]+)*[.!?:]*")
_PLAIN_SIGNS = ("=", ":=")
_PLURALS = ("s", "S")


def _assigned(text: str) -> Iterator[Span]:
    """Yield the values that are assigned to names of secrets."""
    for match in _ASSIGNMENT.finditer(text):
        group = next(name for name in _VALUE_GROUPS if match.start(name) >= 0)
        start, end = match.span(group)
        value = match[group]
        if (
            not is_secret_value(value)
            or _PLACEHOLDER.match(value) is not None
            or _CLASS_NAME.fullmatch(value) is not None
        ):
            continue
        if group == "bare" and _is_code_or_prose(text, match, value):
            continue
        if match["telling"] is not None:
            is_secret = _HARMLESS_TAIL.fullmatch(match["tail"]) is None
            if match["tail"] in _PLURALS:
                is_secret = _looks_generated(value)
        else:
            is_secret = _is_value_of_ending(text, match, value)
        if is_secret:
            yield start, end


def _is_code_or_prose(text: str, match: re.Match[str], value: str) -> bool:
    """Say whether an unquoted value is what code or prose has there: a reference, a type, a word."""
    if _REFERENCE.match(value) is not None and not looks_random(value.rpartition("/")[2]):
        return True
    follows = text[match.end() : match.end() + 1]
    if follows and follows in "([" and _WORDS.fullmatch(value.replace(".", "_")) is not None:
        return True
    if _IDENTIFIER.fullmatch(value) is not None and "_" in value and names_secret(value):
        return True  # api_key=_api_key, password=user_password
    is_spaced = match["sign"] not in _PLAIN_SIGNS
    return is_spaced and _WORDS.fullmatch(value) is not None


def _is_value_of_ending(text: str, match: re.Match[str], value: str) -> bool:
    """Judge the value of a name that only ends like a secret's: of a key it must look generated."""
    if match["ending"][0] in "Pp":
        return _REFERENCE.match(value) is None and not (match["ending"] == "PASS" and ":" in match["sign"])
    before = text[max(0, match.start() - 24) : match.start()]
    if _HARMLESS_KEY.search(before) is not None or " " in value:
        return False
    is_variable = match["ending"] == "KEY" and match["sign"] == "="  # as in a shell; code has spaces, and other keys
    return _looks_generated(value, shortest=8 if is_variable else 16)


def _looks_generated(value: str, *, shortest: int = 16) -> bool:
    return len(value) >= shortest and any(c.isdigit() for c in value) and any(c.isalpha() for c in value)


_NAMES_SECRET = re.compile(rf"(?P<telling>{_TELLING})(?P<tail>[\w.-]*)|{_ENDING}")
_NAMES_CREDENTIALS = re.compile(r"(?:authorization|cookie)\Z", re.IGNORECASE)


def names_secret(name: str) -> bool:
    """Say whether the value with this name is a secret."""
    match = _NAMES_SECRET.search(name)
    if match is None:
        return False
    if match["telling"] is not None:
        return _HARMLESS_TAIL.fullmatch(match["tail"]) is None
    return _HARMLESS_KEY.search(name[: match.start()]) is None


def is_secret_value(value: str) -> bool:
    """Say whether what a secret's name stands for can be one: long enough, and neither a number nor a date."""
    return len(value) >= 8 and _NUMBER_OR_DATE.fullmatch(value) is None


def names_credentials(name: str) -> bool:
    """Say whether the value with this name is that of an authorization or cookie header."""
    return _NAMES_CREDENTIALS.search(name) is not None


ASSIGNED_SECRET = SensitivePattern("assigned secret", _HINTS, _assigned, ignores_case=True)
