"""Which directories the owner of a home trusts: `config/trust.json`. Only in these are snapshots taken.

The file also remembers which directories the owner was asked about and does not trust, and what sessions load from a
trusted one: trust is of content. Where that has changed since, the directory counts as untrusted until a person agrees.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from amplifier_foundation.io import load_yaml
from amplifier_foundation.sources.store import locked_now
from amplifier_kit.redaction import mask_text

from .exceptions import SettingsError, TrustError
from .paths import Paths
from .stored_json import StoredFormat

FORMAT = StoredFormat(version=1)
_LOCK_WAIT_S = 30.0
_TRUSTED, _DECLINED, _CONTENT = "directories", "declined", "content"
_LOADED = (".amplifier", ".mcp.json")  # what sessions load from a project
_NOT_LOADED = frozenset({"logs", "transcripts", "audit", "sessions"})  # directly in these folders; deeper it is code
_CACHE = "__pycache__"
_SETTLING = re.compile(
    r"\.mcp\.json|\.amplifier/(?:settings[^/]*|overlay\.md|overlays/.*\.md|hooks/(?:[^/]+/)?hooks\.json)"
)  # they choose what runs
_COMMAND_KEYS = frozenset({"command", "args", "config_file", "program", "script"})
_MOST_FILES = 5_000
_TOO_MANY = f"more than {_MOST_FILES} files"  # which nobody can have looked at
_LONGEST_TEXT = 32_768  # of a file that is kept to show what changed in it


class Trust:
    """The trusted directories of a home; all with what is below them, symlinks resolved."""

    def __init__(self, paths: Paths) -> None:
        self._file = paths.trust_file
        self._lock = paths.locks / "trust.lock"

    def list(self) -> tuple[Path, ...]:
        """Return the trusted directories, in the order of their paths.

        Raises:
            SettingsError: the file is damaged.
            FormatUnsupportedError: a newer version wrote it.
        """
        return tuple(sorted(self._read(_TRUSTED)))

    def add(self, directory: Path | str) -> None:
        """Trust a directory and what is below it.

        Raises:
            TrustError: it is not a directory, or it is `/`, the user's home directory or one above that.
        """
        trusted = _resolved(directory)
        if not trusted.is_dir():
            raise TrustError(f"{trusted} is not a directory", hint="name one that exists")
        if why := _too_wide(trusted):
            raise TrustError(f"{trusted} cannot be trusted: {why}", hint="trust the directory of one project")
        if os.fsdecode(os.fsencode(trusted).decode("utf-8", "replace")) != str(trusted):
            raise TrustError(f"{str(trusted)!r} cannot be trusted: its name is not UTF-8", hint="rename it")
        change = {_TRUSTED: lambda known: known | {trusted}, _DECLINED: lambda known: known - {trusted}}
        self._change(change, content={str(trusted): _loaded_from(trusted)})

    def remove(self, directory: Path | str) -> bool:
        """Trust a directory no longer; False when it was not in the list."""
        place = _resolved(directory)
        return self._change({_TRUSTED: lambda known: known - {place}}, content={str(place): None})

    def decline(self, directory: Path | str) -> None:
        """Remember that the owner was asked about a directory and does not trust it."""
        self._change({_DECLINED: lambda known: known | {_resolved(directory)}})

    def has_declined(self, directory: Path | str) -> bool:
        """True if the owner was asked about this directory and does not trust it."""
        return _resolved(directory) in self._read(_DECLINED)

    def contains(self, directory: Path | str) -> bool:
        """True if a directory is trusted, or lies below one that is."""
        place = _resolved(directory)
        return any(place.is_relative_to(each) and not _too_wide(each) for each in self.list())

    def is_trusted_as_it_is(self, directory: Path | str) -> bool:
        """True for a directory that is trusted, and whose content is what was trusted."""
        return self.contains(directory) and self.is_unchanged(directory)

    def is_unchanged(self, directory: Path | str) -> bool:
        """True for a project whose content a person has trusted as it is now; also for one that has none."""
        return not any(self.differences(directory))

    @contextmanager
    def following(self, directory: Path | str) -> Iterator[None]:
        """Keep a project trusted through a change that its owner makes with a command of ours."""
        place = _resolved(directory)
        is_kept = place in self._read(_TRUSTED) and self.is_unchanged(place)
        yield
        if is_kept:
            self.add(place)

    def differences(self, directory: Path | str) -> Iterator[str]:
        """Yield what changed in a project since it was trusted: a line for each file, with a diff where it is text.

        A directory that was trusted before content was recorded has everything in it to show.
        """
        place = _resolved(directory)
        known = self._contents().get(str(place), {})
        now = _loaded_from(place)
        for name in sorted(known.keys() | now.keys()):
            old, new = known.get(name), now.get(name)
            if old and new and old.get("sha256") == new["sha256"] and name != _TOO_MANY:
                continue
            what = "new" if old is None else "gone" if new is None else "changed"
            before, after = ((side or {}).get("text", "").splitlines() for side in (old, new))
            lines = list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]
            yield "\n".join([f"{name}: {what}", *(f"  {line}" for line in lines)])

    def why_no_snapshot(self, directory: Path | str, *, is_trusted: bool = False) -> str:
        """Say why a directory may not be snapshotted; empty when it may.

        `is_trusted` stands for the list where the caller vouches for the directory, as a program does that opens a
        session in it. A home directory and those above it are refused in any case.
        """
        place = _resolved(directory)
        if not place.is_dir():
            return f"{place} is not a directory"
        if why := _too_wide(place):
            return why
        if is_trusted or self.contains(place):
            return ""
        return f"{place} is not a trusted directory"

    def _read(self, key: str) -> set[Path]:
        try:
            value = FORMAT.read(self._file) or {_TRUSTED: []}
            return {Path(str(each)) for each in (value[key] if key == _TRUSTED else value.get(key, []))}
        except (ValueError, KeyError, TypeError) as error:
            raise SettingsError(
                f"{self._file} is damaged: {error}", hint="repair or remove it, then trust your directories again"
            ) from error

    def _contents(self) -> dict[str, dict[str, Any]]:
        try:
            found = (FORMAT.read(self._file) or {}).get(_CONTENT) or {}
        except ValueError as error:
            raise SettingsError(f"{self._file} is damaged: {error}", hint="repair or remove it") from error
        return found if isinstance(found, dict) else {}

    def _change(
        self,
        changes: Mapping[str, Callable[[set[Path]], set[Path]]],
        *,
        content: Mapping[str, dict[str, Any] | None] | None = None,
    ) -> bool:
        with locked_now(self._lock, wait_s=_LOCK_WAIT_S) as held:
            if not held:
                raise SettingsError(f"{self._file} is being changed by another process")
            before = {key: self._read(key) for key in (_TRUSTED, _DECLINED)}
            after = before | {key: change(before[key]) for key, change in changes.items()}
            contents = self._contents()
            recorded = {place: files for place, files in {**contents, **(content or {})}.items() if files}
            if after != before or recorded != contents:
                kept: dict[str, Any] = {
                    key: sorted(map(str, places)) for key, places in after.items() if places or key == _TRUSTED
                }
                FORMAT.write(self._file, kept | ({_CONTENT: recorded} if recorded else {}))
            return after != before


def _loaded_from(project: Path) -> dict[str, dict[str, Any]]:
    """Return what sessions load from a project, by name: settings, overlays, modules, commands, servers, and the files
    of the project that settings, overlays and lists of servers name, such as the program of a server; no logs."""
    found: dict[str, dict[str, Any]] = {}
    for file in (*_files(project), *_referred(project)):
        name = str(file.relative_to(project))
        if len(found) == _MOST_FILES:
            found[_TOO_MANY] = {"sha256": ""}
            break
        try:
            data = file.read_bytes()
        except OSError as error:
            found[name] = {"sha256": f"unreadable: {error.strerror}"}
            continue
        found[name] = {"sha256": hashlib.sha256(data).hexdigest()}
        if len(data) <= _LONGEST_TEXT and b"\0" not in data:
            found[name]["text"] = mask_text(data.decode("utf-8", "replace"), ("secrets",))
    return found


def _files(project: Path) -> Iterator[Path]:
    for name in _LOADED:
        start = project / name
        if start.is_file():
            yield start
        for folder, folders, files in os.walk(start, followlinks=True):  # code behind a link runs as well
            is_top = folder == str(start)
            folders[:] = sorted(inner for inner in folders if not (is_top and inner in _NOT_LOADED))
            yield from (
                Path(folder) / file
                for file in sorted(files)
                if not (is_top and file.endswith(".jsonl")) and not _is_kept_by_python(Path(folder), file)
            )


def _referred(project: Path) -> Iterator[Path]:
    """Yield the files elsewhere in a project that its settings and overlays name, and that lists among these name."""
    waiting = [file for file in _files(project) if _SETTLING.fullmatch(file.relative_to(project).as_posix())]
    seen: set[str] = set()
    while waiting and len(seen) < _MOST_FILES:
        file = waiting.pop()
        for word in _words_of(file):
            for base in (project, file.parent):
                name = os.path.normpath(base / word)
                path = Path(name)
                if name in seen or not path.is_relative_to(project) or not _is_file(path):
                    continue
                seen.add(name)
                if path.relative_to(project).parts[0] not in _LOADED:
                    yield path
                    waiting += [path] if path.suffix == ".json" else []


def _words_of(file: Path) -> Iterator[str]:
    """Yield the words of the commands in settings, in the front matter of an overlay, or in a list of servers."""
    with suppress(OSError, ValueError, yaml.YAMLError, RecursionError):
        with file.open("rb") as opened:
            text = opened.read(_LONGEST_TEXT).decode("utf-8", "replace")
        if file.suffix == ".md":
            text = text.removeprefix("---").partition("\n---")[0]
        yield from (word for command in _commands_in(load_yaml(text)) for word in (command, *command.split()))


def _commands_in(value: Any, *, is_command: bool = False) -> Iterator[str]:
    """Yield the texts that stand under the key of a command, at any depth."""
    if isinstance(value, str):
        yield from [value] if is_command else []
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _commands_in(inner, is_command=is_command or key in _COMMAND_KEYS)
    elif isinstance(value, list):
        for inner in value:
            yield from _commands_in(inner, is_command=is_command)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _is_kept_by_python(folder: Path, file: str) -> bool:
    """True for bytecode as Python itself keeps it; what it would run whatever its source says was put there."""
    if folder.name != _CACHE or not file.endswith(".pyc"):
        return False
    from amplifier_foundation.sources.resolved import is_planted_bytecode  # most folders have no code

    return not is_planted_bytecode(folder / file)


def _resolved(directory: Path | str) -> Path:
    try:
        expanded = Path(directory).expanduser()
    except RuntimeError as error:
        raise TrustError(f"{directory} begins with a user who is not known here", hint="write the path out") from error
    return Path(os.path.realpath(expanded))  # `resolve` raises when symlinks go in a circle


def _too_wide(directory: Path) -> str:
    """Say why a directory holds too much to be trusted or snapshotted; empty when it does not."""
    home = _resolved("~")
    if directory == Path(directory.anchor):
        return f"{directory} is the root of the file system"
    if directory == home:
        return f"{directory} is your home directory"
    return f"your home directory is inside {directory}" if home.is_relative_to(directory) else ""
