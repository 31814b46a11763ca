"""What secrets look like, all of it: by their shape and by their name."""

import re
from collections.abc import Callable, Iterator

from .patterns import SensitivePattern, Span, matches_of

# Secrets that are known by their shape: the tokens of services, key blocks, and what stands in URLs and headers.

# Text that may stand right before a token although it looks like a part of it: the escapes of JSON and of URLs, and
# the colours of a terminal. Each holds a character that no token has, so that a token has but one place to start.
_LEADS_IN = (r"\\[bfnrt]", r"\\u[0-9a-fA-F]{4}", r"%[0-9A-F]{2}", r"[\[;][0-9]m", r"[\[;][0-9]{2}m", r"\[[mK]")


def _token(
    name: str, prefix: str, body: str, hints: tuple[str, ...] = (), accepts: Callable[[str], bool] | None = None
) -> SensitivePattern:
    """Return the pattern of a token with a prefix, a regular expression of fixed width, at the start of a word.

    The look behind comes after the prefix: a regular expression that begins with a literal is searched for quickly.
    """
    starts_here = "|".join([rf"(?<![A-Za-z0-9_-]{prefix})", *(f"(?<={lead_in}{prefix})" for lead_in in _LEADS_IN)])
    return SensitivePattern(name, hints or (prefix,), matches_of(f"{prefix}(?:{starts_here}){body}", accepts))


def looks_random(text: str) -> bool:
    """True if a text mixes small letters, capitals and digits, as generated secrets do and words do not."""
    return (
        any(character.islower() for character in text)
        and any(character.isupper() for character in text)
        and any(character.isdigit() for character in text)
    )


_BLOCK_LINE = re.compile(
    r"-----(BEGIN|END) (?:[A-Z0-9]{1,20} ?){1,6}-----|---- (BEGIN|END) SSH2 (?:[A-Z]{1,20} ?){1,4}----"
)


# A line break, also as JSON has it, what an editor or a diff puts before a line, and a line of base64 or a header.
_BLOCK_BODY = re.compile(
    r"(?:(?:[ \t]{0,8}(?:\r?\n|\\{1,4}[rn])){1,4}[ \t>+|]{0,16}+(?:[0-9]{1,6}+[\t:|\u2192 ][ \t]{0,4}+)?"
    r"(?:[A-Za-z0-9+/=]{1,128}+(?=[ \t]{0,8}(?:[\r\n\\\"'`]|\Z))"
    r"|(?:Proc-Type|DEK-Info|Version|Comment): [^\r\n\\]{1,128}+)?+)*+"
)


def _key_blocks(text: str) -> Iterator[Span]:
    """Yield the blocks of PEM, PGP and SSH as a whole, and of those that do not end what there is of them."""
    begin: re.Match[str] | None = None
    for line in _BLOCK_LINE.finditer(text):
        is_begin = "BEGIN" in (line[1], line[2])
        if not is_begin and begin is not None:
            yield begin.start(), line.end()
            begin = None
        elif is_begin:
            if begin is not None:
                yield _unended(begin, text)
            begin = line
    if begin is not None:
        yield _unended(begin, text)


def _unended(begin: re.Match[str], text: str) -> Span:
    """Return the first line of a block with the lines behind it that can be its body."""
    body = _BLOCK_BODY.match(text, begin.end())
    end = body.end() if body else begin.end()
    return begin.start(), begin.end() + len(text[begin.end() : end].rstrip())


def open_block(text: str) -> int | None:
    """Return where a key block begins that does not end in this text."""
    begin: int | None = None
    for line in _BLOCK_LINE.finditer(text):
        begin = line.start() if "BEGIN" in (line[1], line[2]) else None
    return begin


_WORD_STARTS = re.compile("|".join([r"(?<![A-Za-z0-9_-])", *(f"(?<={lead_in})" for lead_in in _LEADS_IN)]))
_TELEGRAM_BODY = re.compile(r":(?<=[0-9]{6}:)[A-Za-z0-9_-]{30,50}+(?![A-Za-z0-9_-])")
_TELEGRAM_ID = re.compile(r"[0-9]{6,12}(?![0-9])")
_DISCORD_TAIL = re.compile(r"\.(?<=[A-Za-z0-9_-]{20}\.)[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,100}+")


def _telegram_tokens(text: str) -> Iterator[Span]:
    """Yield the tokens of Telegram bots: a number, a colon, and 35 random characters."""
    for body in _TELEGRAM_BODY.finditer(text):
        number = _TELEGRAM_ID.match(text[max(0, body.start() - 13) : body.start()][::-1])
        if number is not None and looks_random(body[0]):
            yield body.start() - number.end(), body.end()


def _discord_tokens(text: str) -> Iterator[Span]:
    """Yield the tokens of Discord bots: three parts, the first of which is a number in base64."""
    for tail in _DISCORD_TAIL.finditer(text):
        for start in range(tail.start() - 28, tail.start() - 22):
            if start >= 0 and text[start] in "MNO" and _WORD_STARTS.match(text, start) and looks_random(tail[0]):
                yield start, tail.end()
                break


_PGPASS = re.compile(
    r":(?:543[0-9]|6432|6543|\*):(?P<database>[^\s:\"'`]{1,63}+):[^\s:\"'`]{1,63}+:"
    r"(?P<password>(?:[^\s\x00-\x1f:\\\"'`]|\\[:\\]){4,128}+)(?=[\s\x00-\x1f\\\"'`]|\Z)"
)
_HOST_BACKWARDS = re.compile(r"[\w.*-]{1,255}+(?![\w.*/:-])")


def _pgpass_passwords(text: str) -> Iterator[Span]:
    """Yield the passwords of `.pgpass` lines: host, port, database, user and password."""
    for line in _PGPASS.finditer(text):
        host = _HOST_BACKWARDS.match(text[max(0, line.start() - 255) : line.start()][::-1])
        if host is None or (line["database"].isdigit() and line["database"] != "*"):
            continue
        if _HEX.fullmatch(host[0]) is None:  # as the groups of an address are
            start, end = line.span("password")
            yield start, end - (line["password"].endswith(")") and "(" not in line["password"])


_HEX = re.compile(r"[0-9a-fA-F]{1,4}")

_VALUE_OF_HEADER = r"""\\{0,8}["'`]?\]?\s{0,8}+[:=,]\s{0,8}+\\{0,8}["'`]?"""
_AUTHORIZATION = (
    rf"[Aa](?i:uthorization){_VALUE_OF_HEADER}"
    r"(?:(?i:bearer|basic|token|digest|apikey|negotiate)\s{1,8}+(?P<token>[A-Za-z0-9._~+/=:-]{6,}+)"
    r"|AWS4-HMAC-SHA256\s(?P<signed>[^\n\"'`\\<>]{16,}+)"
    r"|(?P<bare>(?=[^\s\"'`\\]{0,64}[0-9])[A-Za-z0-9._~+/=-]{16,}+))"
)
_COOKIE = (
    rf"[Cc](?i:ookie){_VALUE_OF_HEADER}"
    r"(?P<cookies>[\w.!#$%&*+^~-]{1,64}=[^\s\x00-\x1f\"'`\\;()]{4,}+(?:;\s?[^\s\x00-\x1f\"'`\\;()]{1,}+){0,50})"
)
_CREDENTIALS = r"(?i)(?:bearer|basic|token|digest|apikey)\s{1,8}+(?P<token>\S{6,}+)"
_COOKIES = r"(?s)\A[\w.!#$%&*+^~-]{1,64}=[^\s;]{4,}+.*"
_NETRC_PASSWORD = r"""login\s{1,8}+\S{1,128}+\s{1,8}+password\s{1,8}+(?P<password>[^\s\x00-\x1f"'\\()]{1,256}+)"""
# A password may hold a slash or an at sign; digits up to a slash are the port of a host.
_URL_PASSWORD = (
    r"""://[^\s/?#@:"'<>\\\[\]]{0,256}+:(?P<password>(?:(?![0-9]{1,5}/|[{$<])[^\s?#"'<>\\@]{1,128}@)?[^\s/?#"'<>\\]{0,128}"""
    r"""|(?![0-9]{1,5}/|[{$<])[^\s?#"'<>\\@]{1,256})@(?=[A-Za-z0-9\[$-])"""
)
_URL_USER = r"://(?P<user>[A-Za-z0-9_.~%-]{20,128}+)@"
_QUERY = (
    r"[?&;](?i:sig|signature|key|auth|x-amz-signature|x-amz-security-token|x-goog-signature|code|apikey)="
    r"(?P<value>[A-Za-z0-9%+/=_.~-]{16,}+)"
)
_WEBHOOK = (
    r"(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks|outlook\.office\.com/webhook"
    r"|\.webhook\.office\.com/webhookb2)/(?P<path>[A-Za-z0-9/_@-]{20,}+)"
)


def _random_value(value: str) -> bool:
    return looks_random(value) or (any(c.isdigit() for c in value) and any(c.isalpha() for c in value))


TELLING_PREFIXES = {  # no word or name begins with one of these and goes on for so long
    "Atlassian token": "ATATT3xFf",
    "Buildkite token": "bkua_",
    "CircleCI token": "CCIPAT_",
    "Contentful token": "CFPAT-",
    "Docker token": "dckr_pat_",
    "Figma token": "figd_",
    "Fly.io token": "fm2_",
    "Grafana token": "glsa_",
    "Grafana Cloud token": "glc_",
    "Heroku token": "HRKU-",
    "New Relic key": "NRAK-",
    "1Password token": "ops_eyJ",
    "Netlify token": "nfp_",
    "Perplexity key": "pplx-",
    "PlanetScale token": "pscale_tkn_",
    "PlanetScale password": "pscale_pw_",
    "Postman key": "PMAK-",
    "Pulumi token": "pul-",
    "RubyGems key": "rubygems_",
    "Sentry token": "sntrys_",
    "Sentry user token": "sntryu_",
    "SonarQube token": "squ_",
    "Supabase token": "sbp_",
    "Tailscale key": "tskey-",
}
_LONG_BODY = r"(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_+/=-]{20,}+(?:[.-][A-Za-z0-9_+/=-]{8,}+)*+"

TOKEN_PATTERNS: tuple[SensitivePattern, ...] = (
    *(_token(name, prefix, _LONG_BODY) for name, prefix in TELLING_PREFIXES.items()),
    _token("AWS access key ID", "A[KS]IA", r"[0-9A-Z]{16,}+", ("AKIA", "ASIA")),
    _token("Slack token", "xox[abceoprs]-", r"[A-Za-z0-9-]{6,}+", ("xox",)),
    _token("Slack token with an expiry", r"xoxe\.xox[bp]-", r"[A-Za-z0-9-]{6,}+", ("xoxe.",)),
    _token("Slack app token", "xapp-", r"[A-Za-z0-9-]{10,}+"),
    _token("Google API key", "AIza", r"[A-Za-z0-9_-]{35,}+"),
    _token("Google access token", r"ya29\.", r"[A-Za-z0-9_-]{20,}+", ("ya29.",)),
    _token("Google client secret", "GOCSPX-", r"[A-Za-z0-9_-]{10,}+"),
    _token("Google refresh token", "1//", r"[A-Za-z0-9_-]{20,}+"),
    _token("JSON web token", "eyJ", r"[A-Za-z0-9_-]{7,}+\.[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}+"),
    _token("encrypted JSON web token", "eyJ", r"[A-Za-z0-9_-]{7,}+\.\.[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_.-]{10,}+"),
    _token("GitHub token", "gh[pousr]_", r"[A-Za-z0-9_]{10,}+", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    _token("GitHub fine-grained token", "github_pat_", r"[A-Za-z0-9_]{10,}+"),
    _token("OpenAI or Anthropic API key", "sk-", r"[A-Za-z0-9_-]{10,}+"),
    _token("GitLab token", "glpat-", r"[A-Za-z0-9_.-]{20,}+"),
    _token("GitLab deploy or runner token", "gl(?:dt|rt|ft)-", r"[A-Za-z0-9_.-]{20,}+", ("gldt-", "glrt-", "glft-")),
    _token(
        "GitLab trigger or agent token", "gl(?:ptt|cbt|imt)-", r"[A-Za-z0-9_.-]{20,}+", ("glptt-", "glcbt-", "glimt-")
    ),
    _token("GitLab agent token", "glagent-", r"[A-Za-z0-9_.-]{20,}+"),
    _token("GitLab application secret", "gloas-", r"[A-Za-z0-9_.-]{20,}+"),
    _token("npm token", "npm_", r"[A-Za-z0-9]{36,}+"),
    _token("PyPI token", "pypi-", r"(?=[A-Za-z_-]{0,64}[0-9])(?=[a-z0-9_-]{0,64}[A-Z])[A-Za-z0-9_-]{16,}+"),
    _token("Stripe key", "[rs]k_(?:live|test)_", r"[A-Za-z0-9]{10,}+", ("k_live_", "k_test_")),
    _token("Stripe webhook secret", "whsec_", r"[A-Za-z0-9+/=]{16,}+"),
    _token("Hugging Face token", "hf_", r"[A-Za-z0-9]{30,}+"),
    _token("Hugging Face organisation token", "api_org_", r"[A-Za-z0-9]{30,}+"),
    _token("SendGrid key", r"SG\.", r"[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+", ("SG.",)),
    _token("DigitalOcean token", "do[opr]_v1_", r"[a-f0-9]{32,}+", ("do",)),
    _token("Twilio key", "SK", r"[0-9a-f]{32}(?![0-9A-Za-z])"),
    _token("Replicate token", "r8_", r"[A-Za-z0-9]{32,}+"),
    _token("Groq key", "gsk_", r"[A-Za-z0-9]{20,}+"),
    _token("xAI key", "xai-", r"[A-Za-z0-9]{40,}+"),
    _token(
        "encoded key block",
        "LS0tLS1CRUdJTi(?:BQUklW|BSU0Eg|BFQyBQ|BPUEVO|BFTkNS)",
        r"[A-Za-z0-9+/=]{20,}+",
        ("LS0tLS1CRUdJTi",),
    ),
    _token("Vault token", "hv[sb]\\.", r"[A-Za-z0-9_-]{20,}+", ("hvs.", "hvb.")),
    _token("Vault token of old", r"s\.", r"[A-Za-z0-9]{24}(?![A-Za-z0-9_(-]|\.\w)", ("s.",), looks_random),
    _token("age key", "AGE-SECRET-KEY-", r"(?:PQ-)?1[0-9A-Z]{20,}+"),
    _token("Linear key", "lin_api_", r"[A-Za-z0-9]{20,}+", ("lin_",)),
    _token("Linear access token", "lin_oauth_", r"[A-Za-z0-9]{20,}+", ("lin_",)),
    _token("Notion token", "ntn_", r"[A-Za-z0-9]{30,}+"),
    _token("Notion secret", "secret_", r"[A-Za-z0-9]{32,}+", (), looks_random),
    _token("Doppler token", r"dp\.", r"(?:pt|ct|sa|scim|audit|st(?:\.[a-z0-9_-]{1,35})?)\.[A-Za-z0-9]{20,}+", ("dp.",)),
    SensitivePattern("password in a pgpass file", (":*:", ":543", ":6432:", ":6543:"), _pgpass_passwords),
    _token("Databricks token", "dapi", r"[0-9a-f]{32}(?:-[0-9])?(?![0-9A-Za-z])"),
    _token("Shopify token", "shp(?:at|ca|pa|ss)_", r"[0-9a-fA-F]{32,}+", ("shp",)),
    SensitivePattern("key block", ("-----BEGIN ", "---- BEGIN SSH2"), _key_blocks),
    SensitivePattern("Telegram token", (":",), _telegram_tokens),
    SensitivePattern("Discord token", (".",), _discord_tokens),
    SensitivePattern("authorization header", ("authorization",), matches_of(_AUTHORIZATION), ignores_case=True),
    SensitivePattern("cookie header", ("cookie",), matches_of(_COOKIE), ignores_case=True),
    SensitivePattern("password in a netrc file", ("login",), matches_of(_NETRC_PASSWORD)),
    SensitivePattern("password in a URL", ("://",), matches_of(_URL_PASSWORD)),
    SensitivePattern("token in a URL", ("://",), matches_of(_URL_USER, _random_value)),
    SensitivePattern("signature in a URL", ("=",), matches_of(_QUERY, _random_value)),
    SensitivePattern("webhook", ("hooks.slack.com/", "/webhook", "discord"), matches_of(_WEBHOOK)),
)
CREDENTIAL_VALUES: tuple[SensitivePattern, ...] = (
    SensitivePattern("value of an authorization header", (), matches_of(_CREDENTIALS)),
    SensitivePattern("value of a cookie header", (), matches_of(_COOKIES)),
)
"""What is masked where a name says that credentials follow."""

# Secrets that are known by their name: what is assigned to a key, a token, a secret or a password.

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
    """True if an unquoted value is what code or prose has there: a reference, a type, a word."""
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
    """True if the value with this name is a secret."""
    match = _NAMES_SECRET.search(name)
    if match is None:
        return False
    if match["telling"] is not None:
        return _HARMLESS_TAIL.fullmatch(match["tail"]) is None
    return _HARMLESS_KEY.search(name[: match.start()]) is None


def is_secret_value(value: str) -> bool:
    """True if what a secret's name stands for can be one: long enough, and neither a number nor a date."""
    return len(value) >= 8 and _NUMBER_OR_DATE.fullmatch(value) is None


def names_credentials(name: str) -> bool:
    """True if the value with this name is that of an authorization or cookie header."""
    return _NAMES_CREDENTIALS.search(name) is not None


ASSIGNED_SECRET = SensitivePattern("assigned secret", _HINTS, _assigned, ignores_case=True)

_CURL = "curl"
_COMMAND = re.compile(r"""(?:[^\n|;&\\"']|\\[\s\S]|"[^"\n]{0,1000}+"|'[^'\n]{0,1000}+'|["']){1,4000}+""")
# What the shell puts in has no secret in it, and neither has a placeholder.
_USER_OPTION = re.compile(
    r"""\s(?:-[A-Za-z]{0,8}u|--(?:proxy-)?user)[\s=]{0,4}"""
    r"""(?:"[^":\n]{0,128}:(?P<double>[^"\n$<{][^"\n]{0,255}+)|'[^':\n]{0,128}:(?P<single>[^'\n$<{][^'\n]{0,255}+)"""
    r"""|[^\s:"'=-][^\s:"']{0,127}:(?P<bare>[^\s"'$<{`][^\s"'`]{0,255}+))"""
)


def _curl_passwords(text: str) -> Iterator[Span]:
    """Yield the passwords that curl is given, command by command, each of which is looked at once."""
    start = text.find(_CURL)
    while start >= 0:
        command = _COMMAND.match(text, start)
        end = command.end() if command else start + len(_CURL)
        for option in _USER_OPTION.finditer(text, start, end):
            yield option.span(option.lastgroup or 0)
        start = text.find(_CURL, max(end, start + len(_CURL)))


COMMAND_PASSWORDS = (SensitivePattern("password of a command", (_CURL,), _curl_passwords),)

SECRET_PATTERNS: tuple[SensitivePattern, ...] = (*TOKEN_PATTERNS, *COMMAND_PASSWORDS, ASSIGNED_SECRET)
