"""Bundle files on disk: markdown with front matter, or YAML."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from amplifier_core.mount_plan import MODULE_SECTIONS, MountPlan
from amplifier_foundation.exceptions import BundleLoadError, BundleValidationError
from amplifier_foundation.io.frontmatter import split_frontmatter
from amplifier_foundation.io.yaml import load_yaml, yaml_problem
from amplifier_foundation.paths.construction import construct_context_path
from amplifier_foundation.paths.discovery import BUNDLE_FILES, find_bundle_file

MAX_BYTES = 32 * 1024 * 1024

_YAML_SUFFIXES = (".yaml", ".yml")
_MARKDOWN_SUFFIX = ".md"


@dataclass(frozen=True, slots=True)
class Document:
    """A bundle or agent file, parsed: its mapping and, for markdown, its text."""

    data: dict[str, Any]
    instruction: str | None


def find_file(path: Path) -> Path:
    """Return the bundle file that a path means: the file itself, or the one in that directory.

    Raises:
        BundleLoadError: a directory without one, or a file of another format.
    """
    if path.is_dir():
        file = find_bundle_file(path)
        if file is None:
            raise BundleLoadError(
                f"{path} is not a bundle: missing bundle.md or bundle.yaml",
                hint=f"add {' or '.join(BUNDLE_FILES)} there, or name the bundle's file",
            )
        return file
    if path.suffix.lower() not in (_MARKDOWN_SUFFIX, *_YAML_SUFFIXES):
        raise BundleLoadError(f"Unknown bundle format: {path}", hint="a bundle is a .md, .yaml or .yml file")
    return path


def read_document(file: Path) -> Document:
    """Read and parse a file.

    Raises:
        BundleLoadError: it cannot be read, is not UTF-8, not YAML, too large, or its data is not a mapping.
    """
    text = read_text(file)
    front, body, first_line = (text.lstrip("\ufeff"), "", 1) if is_yaml(file) else split_frontmatter(text)
    try:
        data = load_yaml(front) if front else None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: such as a date that does not exist
        where = yaml_problem(error, first_line=first_line)
        raise BundleLoadError(f"{file} is not valid YAML: {where}", hint="correct that line") from error
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise BundleLoadError(
            f"{file}: the root must be a mapping with a key 'bundle', it is a {type(data).__name__}",
            hint="write bundle: {name: my-bundle, version: 1.0.0}",
        )
    return Document(data, body.strip() or None)


def read_text(file: Path) -> str:
    """Return a file's text, its lines ended by `\\n`.

    Raises:
        BundleLoadError: it cannot be read, is not a regular file, not UTF-8, or too large.
    """
    try:
        info = file.stat()
        if not stat.S_ISREG(info.st_mode):
            raise BundleLoadError(f"{file} is not a regular file")
        if info.st_size > MAX_BYTES:
            raise BundleLoadError(f"{file} has {info.st_size:,} bytes; a bundle has at most {MAX_BYTES:,}")
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise BundleLoadError(f"{file} is not UTF-8: {error}", hint="save the file as UTF-8") from error
    except OSError as error:
        raise BundleLoadError(f"{file} cannot be read: {error}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def is_yaml(file: Path) -> bool:
    """True if a file is YAML as a whole, without a markdown body."""
    return file.suffix.lower() in _YAML_SUFFIXES


# The sections of a bundle file, from plain data to a bundle's fields.


_PLAN_KEYS = ("session", *MODULE_SECTIONS)
_CORRECT_FORMAT = "[{'module': 'tool-name', 'source': 'git+https://host/org/repo@v1'}]"


def parse_sections(data: Any, base_path: Path | None = None, file: Path | None = None) -> dict[str, Any]:
    """Return the fields of a bundle for the data of a bundle file; `file` is named in errors.

    A null counts as absent everywhere. Values are shared with `data` except where a path in them is made absolute.

    Raises:
        BundleValidationError: `providers`, `tools` or `hooks` is not a list of mappings.
        BundleLoadError: another section has the wrong shape.
    """
    return _Reader(data, base_path, file).read()


def resolve_source(entry: Any, base_path: Path, *, must_exist: bool = False) -> Any:
    """Return a module entry with its relative source made absolute, or the entry itself.

    With `must_exist` a source that is not there is left as it is written.
    """
    source = entry.get("source") if isinstance(entry, dict) else None
    if not isinstance(source, str) or not source.startswith(("./", "../")):
        return entry
    path = os.path.realpath(os.path.join(base_path, source))  # noqa: PTH118 - every file has several of these
    if must_exist and not os.path.exists(path):  # noqa: PTH110
        return entry
    return {**entry, "source": path}


def resolve_definition(definition: dict[str, Any], base_path: Path, *, must_exist: bool = False) -> dict[str, Any]:
    """Return an agent's or a bundle's mapping with the relative sources of all its modules made absolute."""
    plan = {key: definition[key] for key in _PLAN_KEYS if key in definition}
    resolved = plan
    for slot in MountPlan(plan).slots():
        spec = resolve_source(slot.spec, base_path, must_exist=must_exist)
        if spec is not slot.spec:
            resolved = MountPlan(resolved).replace(slot, spec)
    return definition if resolved is plan else {**definition, **resolved}


class _Reader:
    def __init__(self, data: Any, base_path: Path | None, file: Path | None) -> None:
        self._base_path = base_path
        self._place = f"bundle {str(file or base_path or '')!r}"
        self._data: dict[str, Any] = {} if data is None else self._expect(dict, data, "the whole document")
        self._head = self._section("bundle", dict)
        self._meta = {} if self._data.get("bundle") is not None else self._section("meta", dict)
        self._name = self._text(self._head or self._meta, "name", "bundle" if self._head else "meta")
        if self._name:
            self._place = f"bundle {self._name!r}" + (f" in {file}" if file else "")

    def read(self) -> dict[str, Any]:
        context, pending = self._context()
        fields = {
            "name": self._name,
            "version": _present(self._head.get("version"), "1.0.0"),
            "description": _present((self._head or self._meta).get("description"), ""),
            "from_meta": bool(self._meta),
            "includes": self._section("includes", list),
            "namespace_root": self._text(self._head, "namespace_root", "bundle") or None,
            "session": self._section("session", dict),
            "providers": self._module_list("providers"),
            "tools": self._module_list("tools"),
            "hooks": self._module_list("hooks"),
            "spawn": self._section("spawn", dict),
            "agents": self._agents(),
            "context": context,
            "_pending_context": pending,
            "base_path": self._base_path,
        }
        return resolve_definition(fields, self._base_path) if self._base_path else fields

    def _module_list(self, section: str) -> list[dict[str, Any]]:
        entries = self._data.get(section)
        if not entries:
            return []
        if not isinstance(entries, list):
            raise BundleValidationError(
                f"{self._place} has malformed {section}: expected list, got {type(entries).__name__}. "
                f"Correct format: {_CORRECT_FORMAT}"
            )
        for index, entry in enumerate(entries):
            if not isinstance(entry, dict):
                raise BundleValidationError(
                    f"{self._place} has malformed {section}[{index}]: expected dict with 'module' and 'source' keys, "
                    f"got {type(entry).__name__} {entry!r}. Correct format: {_CORRECT_FORMAT}"
                )
        return entries

    def _agents(self) -> dict[str, dict[str, Any]]:
        declared = self._data.get("agents")
        if not declared or isinstance(declared, str | list):  # a str or list says which agents may be used
            return {}
        roster = self._expect(dict, declared, "agents")
        agents: dict[str, dict[str, Any]] = {
            name: {"name": name} for name in self._texts(roster.get("include"), "agents.include")
        }
        for name, definition in roster.items():
            if name != "include" and isinstance(definition, dict):
                agents[name] = resolve_definition(definition, self._base_path) if self._base_path else definition
        return agents

    def _context(self) -> tuple[dict[str, Path], dict[str, str]]:
        declared = self._data.get("context") or {}
        if isinstance(declared, list):
            declared = {"include": declared}
        self._expect(dict, declared, "context")
        context: dict[str, Path] = {}
        pending: dict[str, str] = {}
        for item in self._texts(declared.get("include"), "context.include"):
            name = item.removeprefix("@")
            if ":" in name:
                pending[name] = name
            elif self._base_path:
                context[name] = construct_context_path(self._base_path, name)
        for name, path in declared.items():
            if name != "include" and isinstance(path, str):
                context[name] = self._base_path / path if self._base_path else Path(path)
        return context, pending

    def _section(self, key: str, kind: type[Any]) -> Any:
        value = self._data.get(key)
        return kind() if value is None else self._expect(kind, value, key)

    def _text(self, mapping: dict[str, Any], key: str, parent: str) -> str:
        value = mapping.get(key)
        text: str = "" if value is None else self._expect(str, value, f"{parent}.{key}")
        return text

    def _texts(self, items: Any, key: str) -> Iterable[str]:
        for index, item in enumerate(self._expect(list, [] if items is None else items, key)):
            yield self._expect(str, item, f"{key}[{index}]")

    def _expect(self, kind: type[Any], value: Any, key: str) -> Any:
        if isinstance(value, kind):
            return value
        raise BundleLoadError(
            f"{self._place}: {key} must be a {_KIND_NAMES[kind]}, it is a {type(value).__name__}: {_shorten(value)}",
            hint=_HINTS.get(key, ""),
        )


_KIND_NAMES: dict[type[Any], str] = {dict: "mapping", list: "list", str: "string"}
_HINTS = {
    "bundle": "write bundle: {name: my-bundle, version: 1.0.0}",
    "context": "write context: {include: [context/file.md]}",
    "includes": "write a list of {bundle: source}",
}


def _present(value: Any, default: str) -> Any:
    return default if value is None else value


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
