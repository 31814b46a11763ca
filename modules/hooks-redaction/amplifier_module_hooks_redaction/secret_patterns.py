"""What secrets look like: tokens with a known prefix, keys, passwords, and whatever a secret's name stands for."""

import re
from collections.abc import Iterator

from .patterns import SensitivePattern, Span, matches_of

# Text that may stand right before a token although it looks like a part of it: the escapes of JSON and of URLs, and
# the colours of a terminal. Each holds a character that no token has, so that a token has but one place to start.
_LEADS_IN = (r"\\[bfnrt]", r"\\u[0-9a-fA-F]{4}", r"%[0-9A-F]{2}", r"[\[;][0-9]m", r"[\[;][0-9]{2}m", r"\[[mK]")


def _token(name: str, prefix: str, body: str, hints: tuple[str, ...] = ()) -> SensitivePattern:
    """Return the pattern of a token with a prefix, a regular expression of fixed width, at the start of a word.

    The look behind comes after the prefix: a regular expression that begins with a literal is searched for quickly.
    """
    starts_here = "|".join([rf"(?<![A-Za-z0-9_-]{prefix})", *(f"(?<={lead_in}{prefix})" for lead_in in _LEADS_IN)])
    return SensitivePattern(name, hints or (prefix,), matches_of(re.compile(f"{prefix}(?:{starts_here}){body}")))


_KEY_BLOCK_LINE = re.compile(r"-----(BEGIN|END) (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----")


def _private_keys(text: str) -> Iterator[Span]:
    """Yield private key blocks as a whole, and of those that do not end the first line."""
    begin: re.Match[str] | None = None
    for line in _KEY_BLOCK_LINE.finditer(text):
        if line[1] == "END" and begin is not None:
            yield begin.start(), line.end()
            begin = None
        elif line[1] == "BEGIN":
            if begin is not None:
                yield begin.span()
            begin = line
    if begin is not None:
        yield begin.span()


# The part of a name that tells of a secret; tokenizers and secretaries are none.
_SECRET_NAME = (
    r"[AaSsTtPp](?i:(?<=a)(?:pi[ _-]?|ccess[_-]?|ccount[_-]?)key|(?<=s)ecret(?!ar)|(?<=t)oken(?!i[sz])"
    r"|(?<=p)ass(?:word|wd|phrase))"
)
_SECRET_NAME_HINTS = ("key", "secret", "token", "pass")
_ASSIGNED_VALUE = (
    r'"(?P<double_quoted>(?:[^"\\\n]|\\.){8,}+)'
    r"|'(?P<single_quoted>(?:[^'\\\n]|\\.){8,}+)"
    r"""|\\{1,8}["'](?P<quoted_in_json>[^"'\\\n]{8,}+)"""
    r"""|(?P<bare>[^\s\x00-\x1f"'`\\,;&<>|(){}\[\]]{8,}+)"""
)
_ASSIGNMENT = re.compile(
    _SECRET_NAME + r"""[\w.-]{0,40}+(?:\\{0,8}["'`]\]?)?\s{0,8}+(?::=|=>|[:=])\s{0,8}+""" + f"(?:{_ASSIGNED_VALUE})"
)
_AUTHORIZATION = re.compile(
    r"""[Aa](?i:uthorization)\\{0,8}["'`]?\]?\s{0,8}+[:=,]\s{0,8}+\\{0,8}["'`]?(?i:bearer|basic)\s{1,8}+"""
    r"(?P<token>[A-Za-z0-9._~+/=-]{6,}+)"
)
_URL_PASSWORD = re.compile(r"""://[^\s/?#@:"'<>\\\[\]]{0,256}+:(?P<password>[^\s/?#"'<>\\]{1,256})@""")

_NAMES_SECRET = re.compile(_SECRET_NAME)
_NAMES_AUTHORIZATION = re.compile(r"authorization\Z", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(?:bearer|basic)\s{1,8}+(?P<token>\S{6,}+)", re.IGNORECASE)
_NUMBER_OR_DATE = re.compile(r"[\dTZ\s.,:+_%/-]*")


def names_secret(name: str) -> bool:
    """Say whether the value that goes by this name is a secret."""
    return _NAMES_SECRET.search(name) is not None


def is_secret_value(value: str) -> bool:
    """Say whether what a secret's name stands for can be one: long enough, and neither a number nor a date."""
    return len(value) >= 8 and _NUMBER_OR_DATE.fullmatch(value) is None


def names_authorization(name: str) -> bool:
    """Say whether the value that goes by this name is that of an authorization header."""
    return _NAMES_AUTHORIZATION.search(name) is not None


SECRET_PATTERNS: tuple[SensitivePattern, ...] = (
    _token("AWS access key ID", "A[KS]IA", r"[0-9A-Z]{16,}+", ("AKIA", "ASIA")),
    _token("Slack token", "xox[abprs]-", r"[A-Za-z0-9-]{6,}+", ("xox",)),
    _token("Google API key", "AIza", r"[A-Za-z0-9_-]{35,}+"),
    _token("JSON web token", "eyJ", r"[A-Za-z0-9_-]{7,}+\.[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}+"),
    _token("GitHub token", "gh[pousr]_", r"[A-Za-z0-9_]{10,}+", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    _token("GitHub fine-grained token", "github_pat_", r"[A-Za-z0-9_]{10,}+"),
    _token("OpenAI or Anthropic API key", "sk-", r"[A-Za-z0-9_-]{10,}+"),
    _token("Google client secret", "GOCSPX-", r"[A-Za-z0-9_-]{10,}+"),
    _token("Google refresh token", "1//", r"[A-Za-z0-9_-]{20,}+"),
    _token("GitLab token", "glpat-", r"[A-Za-z0-9_-]{20,}+"),
    _token("npm token", "npm_", r"[A-Za-z0-9]{36,}+"),
    _token("Stripe key", "[rs]k_(?:live|test)_", r"[A-Za-z0-9]{10,}+", ("k_live_", "k_test_")),
    SensitivePattern("private key", ("PRIVATE KEY",), _private_keys),
    SensitivePattern("authorization header", ("authorization",), matches_of(_AUTHORIZATION), ignores_case=True),
    SensitivePattern("password in a URL", ("://",), matches_of(_URL_PASSWORD)),
    SensitivePattern(
        "assigned secret", _SECRET_NAME_HINTS, matches_of(_ASSIGNMENT, is_secret_value), ignores_case=True
    ),
)
AUTHORIZATION_VALUE = SensitivePattern("value of an authorization header", (), matches_of(_CREDENTIALS))
