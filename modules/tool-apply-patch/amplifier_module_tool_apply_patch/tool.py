"""The tool `apply_patch`: everything is read and matched first, then written; what fails half way is taken back."""

import logging
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

from amplifier_core import ToolResult
from amplifier_core.events import ARTIFACT_WRITE
from amplifier_kit.concerns import Concern, refusal_of
from amplifier_kit.config import LenientConfig
from amplifier_kit.mounting import find_capability, find_mounted
from amplifier_kit.tools.effects import READ, WRITE
from amplifier_kit.tools.input import ToolFailure, read_input
from amplifier_kit.tools.paths import EVERYTHING, NOTHING, read_path_list
from amplifier_kit.tools.paths import shown as as_text
from amplifier_kit.tools.runs import AnsweringTool, announce, in_worker
from amplifier_kit.tools.workspace import SEEN_FILES, Entry, FileSettings, SeenFiles, TextFormat, Workspace, is_binary

from .patch import Change, numbered, parse_operation, parse_patch, patched

MODULE_ID = "tool-apply-patch"
ENGINE = "apply_patch.engine"
APPLIED = "apply-patch:applied"
EVENTS = (APPLIED, ARTIFACT_WRITE)

_ENGINES = ("auto", "native", "function")
_MOST_BYTES = 10 << 20
_LETTERS = {"add": "A", "create": "A", "update": "M", "delete": "D", "rename": "R"}

logger = logging.getLogger(__name__)

_FUNCTION = """\
Change files by one patch: all of it is applied, or nothing. The patch is an envelope:
*** Begin Patch
*** Add File: path            (then every line of the file with + before it)
*** Update File: path         (optionally: *** Move to: new path; then hunks)
@@ a line above the change    (optional, tells where; then lines with a space, - or + before them)
*** Delete File: path
*** End Patch
Give three lines around each change. A unified diff is taken as well."""
_NATIVE = (
    "Create, update or delete one file by a diff: hunks that begin with @@, lines with a space, - or + before them."
)


@dataclass(frozen=True, slots=True)
class Write:
    """One file as it is to be: `data` None removes it. `before` is what it was, None where there was nothing."""

    path: str
    shown: Path
    data: bytes | None
    before: bytes | None
    state: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Done:
    """What was done to a file, as the result and the event say it."""

    operation: str
    path: str
    target: str | None = None

    @property
    def line(self) -> str:
        return f"{_LETTERS[self.operation]} {self.path}{f' -> {self.target}' if self.target else ''}"


class ApplyPatchTool(AnsweringTool):
    """Takes a whole patch or the operation on one file, whichever of them it shows."""

    name = "apply_patch"
    effects = frozenset({READ, WRITE})

    def __init__(self, config: Mapping[str, Any] | None = None, coordinator: Any = None) -> None:
        read = LenientConfig(MODULE_ID, config)
        engine = read.raw("engine") or "auto"
        if engine not in _ENGINES:
            raise ValueError(f"{MODULE_ID}: config key 'engine' is {engine!r}, allowed: one of {', '.join(_ENGINES)}")
        settings = FileSettings(
            working_dir=read.text("working_dir", None),
            allowed_write_paths=read_path_list(read, "allowed_write_paths", (".",), when_unusable=NOTHING) or NOTHING,
            denied_write_paths=read_path_list(read, "denied_write_paths", NOTHING, when_unusable=EVERYTHING) or NOTHING,
        )
        read.warn_unknown()
        self._coordinator = coordinator
        self._workspace = Workspace(settings, coordinator)
        self.engine = ("native" if _has_native(coordinator) else "function") if engine == "auto" else engine

    @property
    def description(self) -> str:
        return _NATIVE if self.engine == "native" else _FUNCTION

    @property
    def input_schema(self) -> dict[str, Any]:
        if self.engine == "function":
            patch = {"type": "string", "description": "The whole patch, with its envelope."}
            return {"type": "object", "properties": {"patch": patch}, "required": ["patch"]}
        types = ["create_file", "update_file", "delete_file"]
        properties = {
            "type": {"type": "string", "enum": types, "description": "What is done to the file."},
            "path": {"type": "string", "description": "The file, relative to the working directory."},
            "diff": {"type": "string", "description": "The lines of the diff; none to delete a file."},
        }
        return {"type": "object", "properties": properties, "required": ["type", "path"]}

    def get_metadata(self) -> dict[str, Any]:
        """Return what the approval hook wants to know."""
        return {"requires_approval": False, "approval_hints": {"risk_level": "medium"}}

    def concerns_of(self, given: Mapping[str, Any]) -> tuple[Concern, ...]:
        """Return the running places that a call would write, which a person is asked about by name."""
        try:
            changes = self._changes(dict(given))
            paths = [path for change in changes for path in (change.path, change.move_to) if path]
            return tuple(c for path in paths for c in self._workspace.concerns_of(self._workspace.locate(path)))
        except (ToolFailure, ValueError):  # it cannot be applied, and the call says so
            return ()

    async def answer(self, given: Any) -> ToolResult:
        changes = self._changes(given)
        seen = find_capability(self._coordinator, SEEN_FILES)
        if isinstance(seen, SeenFiles):
            self._workspace.seen = seen
        for concern in self.concerns_of(given):
            if refusal := await refusal_of(self._coordinator, concern, self.name):
                raise ToolFailure(f"Access denied: {refusal}", "access_denied", rule="running_places")
            self._workspace.agreed.add(concern.subject)
        is_native = "patch" not in given
        done, sizes = await in_worker(lambda stop: self._apply(changes, stop, is_native=is_native))
        for path, size in sizes:
            await announce(self._coordinator, ARTIFACT_WRITE, {"path": path, "bytes": size})
        for each in done:
            facts = {"path": each.target or each.path, "operation": each.operation}
            await announce(self._coordinator, APPLIED, facts)
        return ToolResult(success=True, output="\n".join(each.line for each in done))

    def _changes(self, given: Any) -> list[Change]:
        """Return what a call asks for, in either shape."""
        if isinstance(given, dict) and isinstance(given.get("patch"), str):
            return parse_patch(given["patch"])
        if isinstance(given, dict) and isinstance(given.get("operation"), dict):  # as the vendor's own calls have it
            given = given["operation"]
        if isinstance(given, dict) and given.get("type") is not None:
            texts = {"path": "path is required"}
            schema = {"properties": {key: {"type": "string"} for key in ("type", "path", "diff")}}
            values = read_input(self.name, schema, given, texts=texts)
            return [parse_operation(values["type"], values["path"], values.get("diff", ""))]
        values = read_input(self.name, self.input_schema, given)
        raise ToolFailure(f"apply_patch: neither a patch nor an operation: {sorted(values)}", "invalid_input")

    # --- in a worker thread

    def _apply(
        self, changes: Sequence[Change], stop: Event, *, is_native: bool
    ) -> tuple[list[Done], list[tuple[str, int]]]:
        writes: list[Write] = []
        done: list[Done] = []
        for change in changes:
            own, what = self._planned(change, is_native=is_native)
            writes += own
            done.append(what)
        written: list[Write] = []
        try:
            for write in writes:
                self._write(write, stop)
                written.append(write)
        except BaseException:
            for write in reversed(written):
                self._take_back(write)
            raise
        return done, [(as_text(write.shown), len(write.data)) for write in writes if write.data is not None]

    def _planned(self, change: Change, *, is_native: bool) -> tuple[list[Write], Done]:
        """Return the files that a change writes, as they will be; nothing is written."""
        now = self._read(change.path, is_needed=change.kind != "add")
        if change.kind == "add":
            if now.before is not None:
                text = TextFormat.of(now.before).decode(now.before)
                message = f"{change.path} exists already; update it instead. It is now:\n{numbered(text)}"
                raise ToolFailure(message, "already_exists")
            data = change.content.encode("utf-8", "surrogatepass")
            return [replace(now, data=_limited(data))], Done("create" if is_native else "add", change.path)
        before = now.before or b""
        if change.kind == "delete":
            return [replace(now, data=None)], Done("delete", change.path)
        if is_binary(before):
            raise ToolFailure(f"Cannot patch binary file: {change.path}", "binary_file")
        style = TextFormat.of(before)
        text = patched(style.normalised(style.decode(before)), change)
        data = _limited(style.encode(text))
        if change.move_to is None:
            return [replace(now, data=data)], Done("update", change.path)
        target = self._read(change.move_to, is_needed=False)
        if target.before is not None:
            raise ToolFailure(f"{change.move_to} exists already; nothing is moved over it", "already_exists")
        return [replace(target, data=data), replace(now, data=None)], Done("rename", change.path, change.move_to)

    def _read(self, path: str, *, is_needed: bool) -> Write:
        shown = self._workspace.locate(path)

        def read(entry: Entry) -> Write:
            found = entry.stat()
            if found is None:
                return Write(path, shown, None, None, None)
            if not stat.S_ISREG(found.st_mode):
                raise ToolFailure(f"Not a regular file: {path}", "not_regular_file")
            self._workspace.seen.find_objection(entry, found)
            with entry.opened() as file:
                return Write(path, shown, None, _limited(file.read(_MOST_BYTES + 1)), _state(found))

        known: Write = self._visit(shown, path, "edit", read, Write(path, shown, None, None, None))
        if is_needed and known.before is None:
            raise ToolFailure(f"File not found: {path}", "not_found")
        return known

    def _write(self, write: Write, stop: Event) -> None:
        def put(entry: Entry) -> None:
            found = entry.stat()
            if (None if found is None else _state(found)) != write.state:
                raise ToolFailure(f"{write.path} has changed while the patch was applied; read it again", "stale_file")
            if write.data is None:
                entry.remove()
            else:
                self._workspace.seen.remember(entry, entry.replace(write.data, found, stop))

        intent = "edit" if write.before is not None else "write"
        self._visit(write.shown, write.path, intent, put, None)

    def _take_back(self, write: Write) -> None:
        """Put a file back as it was."""

        def put(entry: Entry) -> None:
            if write.before is None:
                entry.remove()
            else:
                entry.replace(write.before, entry.stat(), Event())

        with suppress(OSError, ToolFailure):
            self._workspace.visit(write.shown, write.path, "write", put)
            return
        logger.error("%s is not as it was before a patch that failed", write.shown)

    def _visit(self, shown: Path, path: str, intent: Any, work: Callable[[Entry], Any], missing: Any) -> Any:
        try:
            return self._workspace.visit(shown, path, intent, work)
        except (FileNotFoundError, NotADirectoryError):  # a directory on the way
            return missing
        except OSError as exc:
            message = f"OS error writing file: {exc.strerror or exc} ({shown})"
            raise ToolFailure(message, "io_error", type="OSError", errno=exc.errno) from exc


def _has_native(coordinator: Any) -> bool:
    """Say whether a provider of the session has a patch tool of its own, which it announces as `native_tools`."""
    providers = find_mounted(coordinator, "providers")
    listed = providers.values() if isinstance(providers, Mapping) else ()
    return any("apply_patch" in (getattr(provider, "native_tools", None) or ()) for provider in listed)


def _limited(data: bytes) -> bytes:
    if len(data) > _MOST_BYTES:
        raise ToolFailure(f"The file has more than {_MOST_BYTES} bytes, too many to patch", "too_large")
    return data


def _state(found: os.stat_result) -> tuple[int, int]:
    return found.st_mtime_ns, found.st_size
