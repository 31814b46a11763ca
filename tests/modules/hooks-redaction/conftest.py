"""Examples of everything that is masked and of what is not, and a coordinator on which hooks-redaction is mounted."""

import base64
import random
import string
from collections.abc import Callable
from typing import Any

import pytest
from amplifier_module_hooks_redaction import mount

from amplifier_core.testing import MockCoordinator
from amplifier_kit.redaction.secret_patterns import TELLING_PREFIXES

_random = random.Random(7)


def _some(count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(_random.choices(alphabet, k=count))


_KEY_BLOCK = "-----BEGIN {0}PRIVATE KEY-----\n" + _some(64) + "\n" + _some(40) + "==\n-----END {0}PRIVATE KEY-----"

_HOOK, _SIGNATURE = f"{_some(23)}7", f"{_some(39)}8"

# Text with a secret, and the part of it that must not be seen; None for all of it.
SECRETS: dict[str, tuple[str, str | None]] = {
    "AWS access key": ("AKIA" + _some(16, string.ascii_uppercase + string.digits), None),
    "AWS temporary key": ("ASIA" + _some(16, string.ascii_uppercase + string.digits), None),
    "AWS secret": ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEX", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEX"),
    **{f"Slack xox{kind}": (f"xox{kind}-{_some(12, string.digits)}-{_some(16)}", None) for kind in "abprs"},
    "Google API key": ("AIza" + _some(33) + "_-", None),
    "JSON web token": (f"eyJ{_some(17)}.{_some(30)}.{_some(43)}", None),
    "shortest web token": (f"eyJ{_some(7)}.{_some(10)}.{_some(10)}", None),
    **{f"GitHub gh{kind}": (f"gh{kind}_{_some(36)}", None) for kind in "pousr"},
    "shortest GitHub token": (f"ghp_{_some(10)}", None),
    "GitHub fine-grained": (f"github_pat_{_some(22)}_{_some(59)}", None),
    "Anthropic": (f"sk-ant-api03-{_some(80)}-{_some(6)}AA", None),
    "OpenAI": (f"sk-{_some(48)}", None),
    "OpenAI project": (f"sk-proj-{_some(20)}_{_some(20)}", None),
    "shortest sk": (f"sk-{_some(10)}", None),
    "Google client secret": (f"GOCSPX-{_some(28)}", None),
    "Google refresh token": (f"1//0g{_some(40)}-{_some(20)}", None),
    "GitLab": (f"glpat-{_some(20)}", None),
    "npm": (f"npm_{_some(36)}", None),
    **{f"Stripe {kind}": (f"{kind}_{_some(24)}", None) for kind in ("sk_live", "sk_test", "rk_live", "rk_test")},
    **{f"{kind or 'plain '}private key": (_KEY_BLOCK.format(kind), None) for kind in ("", "RSA ", "EC ", "OPENSSH ")},
    "bearer": ("Authorization: Bearer abc.DEF-123_~", "abc.DEF-123_~"),
    "basic": ("authorization: basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    "password in a URL": ("postgres://admin:s3cr3t!pw@db.internal:5432/app", "s3cr3t!pw"),
    "password with an @": ("https://u:p@ss/w0rd".replace("/w", "w") + "@host/x", "p@ssw0rd"),
    "URL without user": ("redis://:hunter2hunter@cache:6379/0", "hunter2hunter"),
    "api key": ("api_key=a8f5f167f44f4964e6c998dee827110c", "a8f5f167f44f4964e6c998dee827110c"),
    "Api-Key": ("X-Api-Key: zaCELgL0imfnc8mVLWwsAawjYr4Rx", "zaCELgL0imfnc8mVLWwsAawjYr4Rx"),
    "client secret": ("CLIENT_SECRET='correct horse battery'", "correct horse battery"),
    "token": ("access_token: q1w2e3r4t5y6", "q1w2e3r4t5y6"),
    "password": ("password=hunter2!hunter2", "hunter2!hunter2"),
    "Azure": ("DefaultEndpointsProtocol=https;AccountKey=Zm9v+/YmFyYmF6==;Suffix=x", "Zm9v+/YmFyYmF6=="),
    "PyPI": (f"pypi-AgEIcHlwaS5vcmc{_some(60)}9Z", None),
    "Slack app": (f"xapp-1-A0{_some(8)}-{_some(13, string.digits)}-{_some(32)}", None),
    "Slack webhook": (f"https://hooks.slack.com/services/T00000000/B00000000/{_HOOK}", f"T00000000/B00000000/{_HOOK}"),
    "Stripe webhook secret": (f"whsec_{_some(32)}", None),
    "Google access token": (f"ya29.a0{_some(60)}", None),
    "Hugging Face": (f"hf_{_some(34)}", None),
    "SendGrid": (f"SG.{_some(22)}.{_some(43)}", None),
    "Azure signature": (f"https://acc.example/c?sv=2022-11-02&sp=r&sig={_SIGNATURE}%3D", f"{_SIGNATURE}%3D"),
    "Azure service bus": (f"Endpoint=sb://x.example/;SharedAccessKey={_SIGNATURE}=", f"{_SIGNATURE}="),
    "connection string": ("Server=db;Uid=sa;Pwd=Sup3rS3cret!;", "Sup3rS3cret!"),
    "GitLab runner": (f"glrt-{_some(20)}", None),
    "DigitalOcean": (f"dop_v1_{_some(64, string.digits + 'abcdef')}", None),
    "Twilio": (f"SK{_some(32, string.digits + 'abcdef')}", None),
    "Telegram": (f"1102015430:AA{_some(31)}b7", None),
    "Discord": ("MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs", None),
    "certificate": (f"-----BEGIN CERTIFICATE-----\n{_some(64)}\n-----END CERTIFICATE-----", None),
    "PGP": (f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{_some(64)}\n-----END PGP PRIVATE KEY BLOCK-----", None),
    "cookie": (f"Cookie: sessionid={_HOOK}; csrftoken={_SIGNATURE}", f"sessionid={_HOOK}; csrftoken={_SIGNATURE}"),
    "authorization token": (f"Authorization: token {_SIGNATURE}", _SIGNATURE),
    "authorization without a scheme": (f"Authorization: {_SIGNATURE}", _SIGNATURE),
    "curl": ("curl -X POST -u admin:hunter2 https://x.example/", "hunter2"),
    "curl, long option": ("curl --user 'admin:hunter2' https://x.example/", "hunter2"),
    "curl, option first": ("curl -u admin:hunter2 https://x.example/", "hunter2"),
    "curl, options together": ("curl -sSfu admin:hunter2 https://x.example/", "hunter2"),
    "curl, no space": ("curl -uadmin:hunter2 https://x.example/", "hunter2"),
    "curl, next line": ("curl -X POST \\\n  -u admin:hunter2 https://x.example/", "hunter2"),
    "curl, quoted": ("curl -u 'admin:hunter; two' https://x.example/", "hunter; two"),
    "curl, proxy": ("curl --proxy-user admin:hunter2 https://x.example/", "hunter2"),
    **{name: (f"{prefix}{_SIGNATURE}9", f"{prefix}{_SIGNATURE}9") for name, prefix in TELLING_PREFIXES.items()},
    "xAI": (f"xai-{_SIGNATURE}{_SIGNATURE}", f"xai-{_SIGNATURE}{_SIGNATURE}"),
    "encoded key block": (
        f"client-key-data: {base64.b64encode(b'-----BEGIN RSA PRIVATE KEY-----' + bytes(range(60))).decode()}",
        base64.b64encode(b"-----BEGIN RSA PRIVATE KEY-----" + bytes(range(60))).decode(),
    ),
    "netrc": ("machine x.example login ada password hunter2hunter", "hunter2hunter"),
    "password with a slash": ("https://ada:pa/ss@x.example/y", "pa/ss"),
    "token as a user": (f"git+https://{_SIGNATURE}@x.example/o/r", _SIGNATURE),
    "token in a query": (f"https://x.example/y?access_token={_HOOK}", _HOOK),
    "name that ends in PASS": ("DB_PASS=correcthorse9", "correcthorse9"),
    "name that ends in PWD": ("MYSQL_PWD=correcthorse9", "correcthorse9"),
    "name that ends in KEY": (f"SIGNING_KEY={_SIGNATURE}", _SIGNATURE),
    "variable that ends in KEY": ("ENCRYPTION_KEY=hunter2hunter", "hunter2hunter"),
    "Vault": (f"hvs.{_some(90)}", None),
    "Vault of old": ("s.9aB" + _some(21), None),
    "age": ("AGE-SECRET-KEY-1" + _some(58, string.ascii_uppercase + string.digits), None),
    "Linear": (f"lin_api_{_some(40)}", None),
    "Notion": (f"ntn_{_some(46)}", None),
    "Notion of old": (f"secret_9aB{_some(40)}", None),
    "Doppler": (f"dp.pt.{_some(43)}", None),
    "Doppler service": (f"dp.st.dev_ada.{_some(43)}", None),
    "pgpass": ("db.internal:5432:app:ada:hunter2hunter", "hunter2hunter"),
    "pgpass for all": ("*:*:*:ada:hunter2hunter", "hunter2hunter"),
    "unseen characters": (f"gh\u200bp_{_some(12)}\u2060{_some(24)}", None),
    "name in camel case": (f"const signingKey = '{_SIGNATURE}'", _SIGNATURE),
}
PERSONAL: dict[str, str] = {
    "mail": "jane.doe+news@mail.example.co.uk",
    "mail beyond ASCII": "jörg@müller.example",
    "phone": "+1 (415) 555-2671",
    "plain phone": "4155552671",
    "international phone": "+4930123456789",
    "spaced phone": "+49 30 1234 5678",
    "dotted phone": "415.555.2671",
    "SSN": "123-45-6789",
    "card": "4111111111111111",
    "spaced card": "5555 5555 5555 4444",
    "dashed card": "3782-822463-10005",
    "long card": "6011000990139424113"[:16],
}
HARMLESS: dict[str, str] = {
    "UUID": "550e8400-e29b-41d4-a716-446655440000",
    "UUID of digits": "12345678-1234-1234-1234-123456789012",
    "MD5": "d41d8cd98f00b204e9800998ecf8427e",
    "git SHA": "9fceb02d0ae598e95dc970b74767f19372d61af8",
    "short SHA": "9fceb02d0",
    "SHA-256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "timestamp": "2024-01-15T10:30:00.123456+00:00",
    "timestamp with a space": "2024-01-15 10:30:00.123456",
    "timestamp Z": "2024-01-15T10:30:00Z",
    "compact timestamp": "20240115T103000Z",
    "timestamp after a number": "1234 2024-01-15 10:30:00",
    "date": "2024-01-15",
    "dates": "2024-01-15 2024-01-16 2024-01-17",
    "time": "10:30:00",
    "version": "1.2.3",
    "long version": "10.15.7.20240115",
    "calendar version": "2024.10.1",
    "semantic version": "1.0.0-rc.1+build.20240115103000",
    "IPv4": "192.168.100.200",
    "IPv4 and port": "192.168.100.200:8080",
    "IPv6": "2001:0db8:85a3:0000:0000:8a2e:0370:7334",
    "cost": "12.34567891",
    "small cost": "0.000012345678",
    "price": "$1234567890.50",
    "round price": "$1234567890",
    "large price": "1,234,567,890.00 EUR",
    "model": "claude-3-5-sonnet-20241022",
    "other model": "gpt-4o-2024-08-06",
    "base64": "VGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVyIHRoZSBsYXp5IGRvZw==",
    "words with sk-": "task-management-system risk-assessment-plan disk-encryption-tools",
    "tokens": '"max_tokens": 4096, "input_tokens": 123456, tokenizer=cl100k_base_extended',
    "URL": "https://example.com:8443/a/b?c=d#e",
    "package": "lodash@4.17.21",
    "path": "/usr/lib/python3.11/site-packages/token_bucket/secret_store.py",
    "match in a file": "src/app/models.py:5432:12:error:unexpected",
    "port and times": "10.0.0.1:8080 10:30:00:123:456:789",
    "call": "return s.getUserByName2FAToken4x(1)",
    "emoji": "a family \U0001f468\u200d\U0001f469\u200d\U0001f467 and a heart \u2764\ufe0f",
    "image": "registry.example:5000/app:1.2.3",
    "expiry": "token_expires_at: 2024-01-15T10:30:00Z",
}


@pytest.fixture(scope="session")
def secrets() -> dict[str, tuple[str, str]]:
    """Texts with a secret, and what must not be seen of each."""
    return {name: (text, hidden or text) for name, (text, hidden) in SECRETS.items()}


@pytest.fixture(scope="session")
def personal() -> dict[str, str]:
    return PERSONAL


@pytest.fixture(scope="session")
def harmless() -> dict[str, str]:
    return HARMLESS


@pytest.fixture(scope="session")
def sensitive_texts() -> list[str]:
    return [*(text for text, _ in SECRETS.values()), *PERSONAL.values()]


@pytest.fixture
def redact(coordinator: MockCoordinator) -> Callable[..., Any]:
    """Mount hooks-redaction with the given configuration, emit an event, and return the data handlers see later."""

    async def mount_and_emit(event: str, data: Any, **config: Any) -> Any:
        seen: list[Any] = []

        async def watch(event: str, data: Any) -> None:
            seen.append(data)

        await mount(coordinator, config)
        coordinator.hooks.register(event, watch, priority=1000)
        await coordinator.hooks.emit(event, data)
        return seen[0]

    return mount_and_emit
