"""What git is given to reach a repository: a URL without secrets, and the secrets by ways that no one else sees.

Credentials go through git's credential helpers: ours is a line of shell that answers from the child's environment. They
are in no argument, which other users could read, and in no file.
"""

from dataclasses import dataclass, field
from urllib.parse import unquote

from amplifier_system.urls import shown

from .reference import GitReference

_USER = "AMPLIFIER_GIT_USERNAME"
_PASSWORD = "AMPLIFIER_GIT_PASSWORD"
_HELPER = f'!f() {{ test "$1" != get || printf "username=%s\\npassword=%s\\n" "${_USER}" "${_PASSWORD}"; }}; f'


@dataclass(frozen=True, slots=True)
class GitAccess:
    """The way to one repository; `options` are git's `-c`, `environment` is for the child alone."""

    url: str
    transport: str
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict, repr=False)


def git_access(reference: GitReference) -> GitAccess:
    """Return the way to a reference's repository.

    A user name without a password may be a token, and may belong to a password that the user's own helpers know: they
    are asked first, then it is sent with an empty one. With a password no other helper is asked.
    """
    transport, _, location = reference.url.partition("://")
    authority, slash, path = location.partition("/")
    userinfo, _, host = authority.rpartition("@")
    if transport == "ssh":
        account = userinfo.partition(":")[0]
        return GitAccess(f"ssh://{account}{'@' if account else ''}{host}{slash}{path}", transport)
    name, colon, password = (unquote(part) for part in userinfo.partition(":"))
    plain = f"{transport}://{host}{slash}{path}"
    url, settings = shown(plain), {}
    if url != plain:  # a secret in the query, of which git's arguments show the hidden form
        settings[f"url.{plain}.insteadOf"] = url
    if not name and not password:
        return GitAccess(url, transport, environment=_as_environment(settings))
    section = f"credential.{transport}://{host}"
    if name:
        settings[f"{section}.username"] = name
    helpers = ("", _HELPER) if colon else (_HELPER,)
    return GitAccess(
        url,
        transport,
        tuple(f"{section}.helper={helper}" for helper in helpers),
        {_USER: name, _PASSWORD: password, **_as_environment(settings)},
    )


def _as_environment(settings: dict[str, str]) -> dict[str, str]:
    """Return settings of git as it reads them from the environment."""
    if not settings:
        return {}
    named = {f"GIT_CONFIG_KEY_{number}": name for number, name in enumerate(settings)}
    values = {f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(settings.values())}
    return {"GIT_CONFIG_COUNT": str(len(settings)), **named, **values}
