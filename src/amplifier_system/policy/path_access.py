"""Which files may be touched: rules about places, of which a denial outranks every permission."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Self

from amplifier_system.homes import daemon_directory, daemon_home, daemon_state, ecosystem_home

Verb = Literal["read", "write"]
OriginOf = Callable[[str, str], str]
"""Says of a key, `read.deny`, and an entry as it is written there, `~/.ssh`, in which file and line it stands.

Without an entry, "", it is asked about the list. It is called when something is refused, not before.
"""

_IGNORES_CASE = sys.platform == "darwin"  # names that differ only in case may be the same there
_OPENS_PATHS = sys.platform == "linux"
_UNTIDY = re.compile(r"/\.{0,2}(?:/|\Z)")  # what has an empty part, `.` or `..` in it; the rest is as it should be
_ADJECTIVES: dict[Verb, str] = {"read": "readable", "write": "writable"}


@dataclass(frozen=True, slots=True)
class DeniedBelow:
    """What is denied below a directory: `places` by their paths relative to it, `names` at any depth."""

    places: frozenset[str]
    names: frozenset[str]

    def covers(self, relative: str) -> bool:
        """True if an entry is denied by itself; who walks a tree never gets to what lies in such a directory."""
        if _key(relative) in self.places:
            return True
        return bool(self.names) and _folded(relative.rpartition(os.sep)[2]) in self.names


@dataclass(frozen=True, slots=True)
class PathAccess:
    """What may be read, or written: below one of the `allowed` places of every group, and below no `denied` one.

    Places are absolute; each stands for itself and everything below it. `denied_names` are denied wherever they stand
    as a component of a path. Both are kept with the rule's entry as it is written, empty for a module's own rules.
    What is `opened` is not denied although it lies inside of a denied place.
    """

    verb: Verb
    allowed: tuple[frozenset[str], ...]
    denied: Mapping[str, str]
    denied_names: Mapping[str, str] = field(default_factory=dict)
    origin_of: OriginOf | None = None
    opened: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, verb: Verb, allow: Iterable[str], deny: Iterable[str], *, base: Path, origin_of: OriginOf | None = None
    ) -> Self:
        """Read rules as they are written: relative to `base`, `~` expanded; a place that is allowed by its very name
        is not denied."""
        allow, places = list(allow), _Places(base)
        # By name, never by where a name leads: a link in a working directory must not take back what it points to.
        taken_back = {places.named(text) for text in allow if text not in ("/", ".")}
        denied: dict[str, str] = {}
        names: dict[str, str] = {}
        for text in deny:
            if places.named(text) in taken_back:
                continue
            if is_bare_name(text):
                names[_folded(text)] = text
            else:
                denied.update(dict.fromkeys(places.meant(text), text))
        allowed = frozenset(place for text in allow for place in places.meant(text))
        return cls(verb, (allowed,), _shared(tuple(denied.items())), _shared(tuple(names.items())), origin_of)

    def narrowed(
        self, allow: Iterable[str] | None, deny: Iterable[str], *, base: Path, denied_names: Iterable[str] = ()
    ) -> Self:
        """Return the access that also keeps to these rules; nothing is added to what is allowed."""
        groups, places = self.allowed, _Places(base)
        if allow is not None:
            groups = (*groups, frozenset(place for text in allow for place in places.meant(text)))
        denied = {**{place: "" for text in deny for place in places.meant(text)}, **self.denied}
        names = {**dict.fromkeys(map(_folded, denied_names), ""), **self.denied_names}
        newly_denied = denied.keys() - self.denied.keys()
        opened = frozenset(place for place in self.opened if newly_denied.isdisjoint(_lineage(place)))
        return type(self)(self.verb, groups, denied, names, self.origin_of, opened)

    def opening(self, *places: Path) -> Self:
        """Return the access to places inside of denied ones, too."""
        found = _Places(Path(os.sep))
        return replace(self, opened=self.opened.union(*(found.meant(str(place)) for place in places)))

    def check(self, path: Path | str, base: Path) -> Path:
        """Return where a path leads, symbolic links resolved.

        Raises:
            PolicyError: it may not be touched, by the name it was given or by where it leads.
        """
        absolute = _absolute(path, base)
        lexical = _tidied(absolute)
        try:
            real = _resolved(absolute)  # not the tidied one: what `..` leads to depends on the links before it
        except ValueError as exc:
            raise PolicyError(f"not {_ADJECTIVES[self.verb]}: {path!r} ({exc})") from None
        lineage = _lineage(real)
        self._refuse_denied(real, lineage, path)
        if lexical != real:
            self._refuse_denied(lexical, _lineage(lexical), path)
        for group in self.allowed:
            if group.isdisjoint(lineage):
                self._refuse(path, "allow", "", is_own=group is self.allowed[0])
        return Path(real)

    def denied_below(self, directory: Path) -> DeniedBelow:
        """Return what a walk through a directory, given without symbolic links, has to leave out."""
        prefix = _key(str(directory)).rstrip(os.sep) + os.sep
        places = (place.removeprefix(prefix) for place in self.denied if place.startswith(prefix))
        return DeniedBelow(frozenset(places), frozenset(self.denied_names))

    def _refuse_denied(self, candidate: str, lineage: list[str], shown: Path | str) -> None:
        if candidate in HARMLESS_DEVICES:
            return
        if not self.denied.keys().isdisjoint(lineage):
            nearest = next(place for place in lineage if place in self.denied or place in self.opened)
            if nearest in self.denied:
                entry = self.denied[nearest]
                self._refuse(shown, "deny", entry, is_own=bool(entry))
        if self.denied_names:
            for name in _folded(candidate).split(os.sep):  # noqa: PTH206 - asked for every file
                if name in self.denied_names:
                    entry = self.denied_names[name]
                    self._refuse(shown, "deny", entry, is_own=bool(entry))

    def _refuse(self, shown: Path | str, rule: str, entry: str, *, is_own: bool) -> None:
        """Raise; `is_own` says that the rule is the policy's own, not one that a module adds."""
        key = f"{self.verb}.{rule}"
        origin = self.origin_of(key, entry) if self.origin_of and is_own else ""
        where = f", {origin}" if origin else ""
        raise PolicyError(f"not {_ADJECTIVES[self.verb]}: {shown} (policy.{key}{where})", rule=key)


def is_bare_name(text: str) -> bool:
    """True if a rule is a bare name, `.git`, which counts at any depth."""
    return os.sep not in text and text not in (".", "..", "") and not text.startswith("~")


def _expanded(path: Path | str) -> str:
    """Return a path with the home directory in place of `~`; that of an unknown user is taken as written."""
    text = os.fspath(path)
    return os.path.expanduser(text) if text.startswith("~") else text  # noqa: PTH111 - asked for every file


def _absolute(path: Path | str, base: Path) -> str:
    text = _expanded(path)
    return text if text.startswith(os.sep) else f"{base}{os.sep}{text}"


def _tidied(path: str) -> str:
    return os.path.normpath(path) if _UNTIDY.search(path) else path


def _resolved(path: str) -> str:
    """Return where an absolute path leads, every symbolic link in it followed.

    Of a path that exists the kernel of a Linux machine knows that at once, and better: a walk through its parts can be
    overtaken by changes. Anything else it says, of what was deleted meanwhile for instance, is not such a path.
    """
    if _OPENS_PATHS:
        try:
            descriptor = os.open(path, os.O_PATH)
            try:
                real = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - asked for every file
            finally:
                os.close(descriptor)
        except OSError:
            return os.path.realpath(path)
        if real[0] == os.sep and not real.endswith(" (deleted)"):
            return real
    return os.path.realpath(path)


class _Places:
    """Finds the places that the rules of one list mean: most lie in few directories, which are looked at once."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._absolute: dict[str, str] = {}
        self._real: dict[str, str] = {}

    def named(self, text: str) -> str:
        """Return the place a rule names, wherever that leads: absolute, `~` expanded, without `.` and `..`."""
        return _key(_tidied(self._find(text)))

    def meant(self, text: str) -> Iterable[str]:
        """Return the place a rule means, by the name it has and by where that leads."""
        places = (self.named(text), _key(self._resolve(self._find(text))))
        return {sys.intern(place) for place in places}  # the same in many sessions

    def _find(self, text: str) -> str:
        found = self._absolute.get(text)
        if found is None:
            found = self._absolute[text] = _absolute(text, self._base)
        return found

    def _resolve(self, path: str) -> str:
        """Return what `os.path.realpath` returns."""
        directory, _, name = path.rpartition(os.sep)
        if not directory or _UNTIDY.search(path):  # what `..` leads to depends on the links before it
            return os.path.realpath(path)
        if directory not in self._real:
            self._real[directory] = os.path.realpath(directory)
        place = f"{self._real[directory].rstrip(os.sep)}{os.sep}{name}"
        return os.path.realpath(place) if os.path.islink(place) else place  # noqa: PTH114 - a hundred in every session


@lru_cache(maxsize=64)
def _shared(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return a mapping; many sessions that are denied the same places have the same one."""
    return MappingProxyType(dict(items))


def _lineage(path: str) -> list[str]:
    """Return a path and everything above it."""
    path = _key(path)
    found = [path]
    end = len(path)
    while (end := path.rfind(os.sep, 0, end)) > 0:
        found.append(path[:end])
    found.append(os.sep)
    return found


def _key(path: str) -> str:
    return _folded(path) if _IGNORES_CASE else path


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


class PolicyError(PermissionError):
    """The session's policy forbids it; `rule` is the rule that did, `read.deny` for example."""

    def __init__(self, message: str, *, rule: str = "") -> None:
        super().__init__(message)
        self.rule = rule


# The places of a machine that hold secrets, and the devices that do not.


SECRET_PLACES = (
    "~/.ssh",
    "~/.gnupg",
    "~/.aws",
    "~/.azure",
    "~/.config/gcloud",
    "~/.kube",
    "~/.docker/config.json",
    "~/.netrc",
    "~/.pypirc",
    "~/.npmrc",
    "~/.git-credentials",
    "~/.config/git/credentials",
    "~/.config/gh",
    "~/.config/op",
    "~/.vault-token",
    "~/.terraform.d",
    "~/.cargo/credentials",
    "~/.cargo/credentials.toml",
    "~/.pgpass",
    "~/.my.cnf",
    "~/.mylogin.cnf",
    "~/.boto",
    "~/.s3cfg",
    "~/.oci",
    "~/.fly",
    "~/.kaggle",
    "~/.databrickscfg",
    "~/.dockercfg",
    "~/.authinfo",
    "~/.authinfo.gpg",
    "~/.gem/credentials",
    "~/.composer/auth.json",
    "~/.config/composer/auth.json",
    "~/.config/containers/auth.json",
    "~/.config/doctl",
    "~/.config/hcloud",
    "~/.config/hub",
    "~/.config/rclone",
    "~/.config/sops",
    "~/.config/stripe",
    "~/.config/github-copilot",
    "~/.cache/huggingface/token",
    "~/.claude/.credentials.json",
    "~/.codex/auth.json",
    "~/.gemini/oauth_creds.json",
    "~/.password-store",
    "~/.config/Bitwarden",
    "~/.config/1Password",
    "~/.config/Signal",
    "~/.local/share/keyrings",
    "~/.local/share/kwalletd",
    "~/.local/share/python_keyring",
    "~/.mozilla",
    "~/.thunderbird",
    "~/.config/google-chrome",
    "~/.config/chromium",
    "~/.config/BraveSoftware",
    "~/.config/microsoft-edge",
    "~/.config/vivaldi",
    "~/snap/firefox",
    "~/snap/chromium",
    "~/Library/Keychains",
    "~/Library/Cookies",
    "~/Library/Application Support/Google/Chrome",
    "~/Library/Application Support/Firefox",
    "~/Library/Application Support/BraveSoftware",
    "/proc",
    "/sys",
    "/dev",
)
"""What nothing may read or write unless a person says so; our own homes come on top."""

HARMLESS_DEVICES = frozenset({"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty"})


def secret_places(environ: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the secret places of this machine as they are written in rules, those of the Amplifier homes included."""
    yield from SECRET_PLACES
    yield from map(str, closed_places(environ))


def closed_places(environ: Mapping[str, str] | None = None) -> Iterator[Path]:
    """Yield what no session reads of the homes that the environment names: configuration, state, and the whole home of
    other applications of the ecosystem."""
    home = daemon_home(environ=environ)
    state = daemon_state(environ=environ)
    yield daemon_directory("CONFIG", home / "config", environ)
    yield state
    yield daemon_directory("LOG", state / "logs", environ)
    yield ecosystem_home(environ)
