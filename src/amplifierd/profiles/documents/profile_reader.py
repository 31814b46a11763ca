"""Reading a profile's text: every rule about the file alone is checked here, and every breach noted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from amplifier_core.mount_plan import MODULE_SECTIONS, SESSION_MEMBERS
from amplifier_foundation.dicts import merge_module_lists
from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.io import load_yaml, split_anchored_frontmatter
from amplifier_foundation.paths.resolution import named_path
from amplifier_foundation.provenance import find_line, parse_path
from amplifier_foundation.sources import parse_reference
from amplifier_system.permission_levels import LEVELS, is_level
from amplifierd.identifiers import (
    ProfileId,
    is_agent_or_context_name,
    is_collection_or_profile_name,
    is_module_id,
    mount_type,
)
from amplifierd.issues import Issue

from .document import (
    ALL_AGENTS,
    NAMED_SECTIONS,
    DeclaredReference,
    ProfileDocument,
    ReferenceBase,
    as_json,
    module_identity,
)
from .literal_secrets import find_literal_secrets

MAX_CHARACTERS = 1024 * 1024
MAX_DEPTH = 50

HEADER_CODES = frozenset(
    {
        *("no-frontmatter", "unclosed-frontmatter", "invalid-yaml", "frontmatter-not-mapping", "wrong-type"),
        *("profile-section-missing", "name-missing", "version-missing", "name-invalid", "schema-version-unsupported"),
    }
)
"""Issues with which a file is not taken for a usable profile at all."""

NOTHING_READ = frozenset({"no-frontmatter", "unclosed-frontmatter", "invalid-yaml", "frontmatter-not-mapping"})
"""Issues with which nothing of a file could be read, so that nothing else can be said about it."""

_KNOWN_SECTIONS = {"session", *MODULE_SECTIONS, *NAMED_SECTIONS, "ui", "exclude"}
_KNOWN_METADATA = {"name", "version", "description", "extends", "model", "schema_version"}
_CONTEXT_ALIASES = ("context-manager", "context_manager")
_LIMITS = ("injection_budget_per_turn", "injection_size_limit")
_LINE_IN_TEXT = re.compile(r"\bline (\d+)")
_TYPE_NAMES = {dict: "mapping", list: "list", str: "string", bool: "boolean", int: "integer", float: "number"}


def read_document(
    text: str, *, path: Path, profile_id: ProfileId, base: ReferenceBase, is_overlay: bool = False
) -> ProfileDocument:
    """Parse a profile's text; whatever is wrong with it is in the result's `issues`.

    `profile_id.name` is the profile's name when the file gives none. An overlay has no metadata of its own.
    """
    reading = _Reading(path, text, base)
    front, body = reading.split(may_be_empty=is_overlay)
    metadata = reading.read_metadata(front.pop("profile", None), profile_id.name) if front and not is_overlay else {}
    if is_overlay and front.pop("profile", None) is not None:
        message = "An overlay has no 'profile' section; it is ignored"
        reading.note("unknown-key", message, "profile", fix="take it out", warning=True)
    reading.note_secrets(front)
    sections = reading.read_sections(front)
    return ProfileDocument(
        profile_id=ProfileId(profile_id.collection, metadata.get("name") or profile_id.name),
        path=path,
        text=text,
        base=base,
        metadata=metadata,
        sections=sections,
        body=body,
        replaced=frozenset(reading.replaced),
        issues=tuple(reading.issues),
    )


def read_sections(values: Mapping[str, Any], base: ReferenceBase) -> tuple[dict[str, Any], list[Issue]]:
    """Bring sections that no file holds, those of a request, into the same shape; returns their issues too.

    A section that drops what is inherited is one that excludes it.
    """
    reading = _Reading(None, "", base)
    sections = reading.read_sections(as_json(dict(values)))
    if reading.replaced:
        sections["exclude"] = {**(sections.get("exclude") or {}), **dict.fromkeys(sorted(reading.replaced), "all")}
    return sections, reading.issues


def find_location(text: str, location: str) -> int | None:
    """Return the line of a key path in a profile's text, or of the nearest key above it that is there."""
    try:
        return find_line(text, parse_path(location))
    except KeyError:  # a key with brackets
        return None


class _Reading:
    """One pass over one file, which collects its issues."""

    def __init__(self, path: Path | None, text: str, base: ReferenceBase) -> None:
        self.path, self.text, self.base = path, text, base
        self.issues: list[Issue] = []
        self.replaced: set[str] = set()

    def note(self, code: str, message: str, location: str = "", *, fix: str = "", warning: bool = False) -> None:
        line = find_location(self.text, location) if location else 1 if self.text else None
        self.issues.append(Issue(code, message, location, self.path, line, fix, "warning" if warning else "error"))

    def expect(self, value: Any, kind: type | tuple[type, ...], location: str, expected: str) -> bool:
        """True if a value has the type it must have, and note it if it does not; a boolean is not a number."""
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds):
            return True
        got = "null" if value is None else _TYPE_NAMES.get(type(value), type(value).__name__)
        self.note("wrong-type", f"{location} must be {expected}, got {got}", location, fix=f"write a {expected} there")
        return False

    def split(self, *, may_be_empty: bool) -> tuple[dict[str, Any], str]:
        """Return front matter and body; nothing of either when the file has no usable front matter."""
        front, body, first_line = split_anchored_frontmatter(self.text)
        if front is None:
            if self.text.lstrip("\ufeff").startswith("---"):
                self.note(
                    "unclosed-frontmatter",
                    f"Profile {self.path} has unclosed frontmatter",
                    fix="end it with a line that contains only ---",
                )
            else:
                self.note(
                    "no-frontmatter",
                    f"Profile {self.path} has no YAML frontmatter",
                    fix="begin the file with a line ---, then YAML, then a line ---",
                )
            return {}, ""
        try:
            data = load_yaml(front, max_characters=MAX_CHARACTERS, max_depth=MAX_DEPTH)
        except yaml.YAMLError as error:
            self._note_yaml_error(error, first_line)
            return {}, ""
        if data is None and may_be_empty:
            data = {}
        if not isinstance(data, dict):
            self.note(
                "frontmatter-not-mapping",
                "Frontmatter must be a YAML dictionary",
                fix="write keys and values, the first of them profile: {name: …, version: …}",
            )
            return {}, ""
        return {"profile": None, **as_json(data)}, body

    def _note_yaml_error(self, error: yaml.YAMLError, first_line: int) -> None:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        found = _LINE_IN_TEXT.search(problem)
        if mark:
            line, column = mark.line + first_line, mark.column + 1
        else:
            line, column = int(found[1]) + first_line - 1 if found else first_line, 1
        problem = _LINE_IN_TEXT.sub(f"line {line}", problem) if found and not mark else problem
        message = f"Invalid YAML in {self.path}: line {line}, column {column}: {problem}"
        fix = "correct the YAML between the two lines ---"
        self.issues.append(Issue("invalid-yaml", message, file=self.path, line=line, fix=fix))

    def note_secrets(self, front: Mapping[str, Any]) -> None:
        for location in find_literal_secrets(front):
            message = "This is a secret; builds and sessions only have a reference to it, but this file has it"
            fix = "write ${A_VARIABLE} there, or leave a provider's key out and store it with: amplifier provider add"
            self.note("literal-secret", message, location, fix=fix, warning=True)

    def read_metadata(self, profile: Any, default_name: str) -> dict[str, Any]:
        if not isinstance(profile, dict):
            self.note(
                "profile-section-missing",
                "No 'profile' section in frontmatter",
                "profile",
                fix="add profile: {name: …, version: …}",
            )
            return {}
        metadata = {**profile, "name": profile.get("name") or default_name}
        for key in profile.keys() - _KNOWN_METADATA:
            fix = "take it out, or correct its name; it is kept but has no effect"
            self.note("unknown-key", f"Unknown key 'profile.{key}'", f"profile.{key}", fix=fix, warning=True)
        self._read_name(metadata)
        self._read_version(metadata)
        self._read_schema_version(metadata)
        for key in ("description", "extends", "model"):
            if metadata.get(key) is None:
                metadata.pop(key, None)
            elif not self.expect(metadata[key], str, f"profile.{key}", "string"):
                del metadata[key]
        if "model" in metadata and not re.fullmatch(r"[^/\s][^/]*/.*\S", metadata["model"]):
            message = "profile.model must be provider/model, got another form of string"
            self.note("wrong-type", message, "profile.model", fix="write provider/model, both parts not empty")
        return metadata

    def _read_name(self, metadata: dict[str, Any]) -> None:
        name = metadata["name"]
        if not name:
            self.note("name-missing", "Missing required fields (name, version)", "profile", fix="add profile.name")
        elif not isinstance(name, str) or not is_collection_or_profile_name(name):
            self.note(
                "name-invalid",
                f"Invalid profile name '{name}'. Name must contain only lowercase letters, numbers, and hyphens",
                "profile.name",
                fix="'.' and '_' are allowed too; it begins with a letter or digit and has at most 64 characters",
            )
            metadata["name"] = None

    def _read_version(self, metadata: dict[str, Any]) -> None:
        version = metadata.get("version")
        if version is None or version == "":
            self.note(
                "version-missing", "Missing required fields (name, version)", "profile", fix="add profile.version"
            )
        elif isinstance(version, int | float) and not isinstance(version, bool):
            metadata["version"] = str(version)
            message = f"profile.version {version} is a number and is read as '{version}'"
            self.note("version-not-string", message, "profile.version", fix=f'write "{version}"', warning=True)
        else:
            self.expect(version, str, "profile.version", "string")

    def _read_schema_version(self, metadata: dict[str, Any]) -> None:
        if "schema_version" not in metadata:
            metadata["schema_version"] = 2
            message = "profile.schema_version is missing; 2 is assumed"
            self.note("schema-version-missing", message, "profile", fix="add schema_version: 2", warning=True)
            return
        version = metadata["schema_version"]
        if version != 2 or isinstance(version, bool | float):
            self.note(
                "schema-version-unsupported",
                f"schema_version {version} not supported. Only schema_version: 2 is accepted",
                "profile.schema_version",
                fix="write the profile in version 2 and say schema_version: 2",
            )

    def read_sections(self, front: dict[str, Any]) -> dict[str, Any]:
        if "contexts" in front:
            front["context"] = self._merged_contexts(front.pop("contexts"), front.get("context"))
        sections: dict[str, Any] = {}
        for key, value in front.items():
            if key == "profile":
                continue
            if key not in _KNOWN_SECTIONS:
                fix = "take it out, or correct its name; it is kept but has no effect"
                self.note("unknown-key", f"Unknown key '{key}'", key, fix=fix, warning=True)
            read = {"session": self._read_session, "agents": self._read_agents, "context": self._read_contexts}.get(
                key, partial(self._read_modules, key) if key in MODULE_SECTIONS else partial(self._read_other, key)
            )
            sections[key] = None if value is None else read(value)
        return sections

    def _merged_contexts(self, aliased: Any, context: Any) -> Any:
        if isinstance(aliased, dict) and isinstance(context, dict):
            return {**aliased, **context}
        return aliased if context is None else context

    def _read_other(self, section: str, value: Any) -> Any:
        if section in {"ui", "exclude"} and not self.expect(value, dict, section, "mapping"):
            return {}
        return value

    def _read_session(self, value: Any) -> dict[str, Any]:
        if not self.expect(value, dict, "session", "mapping"):
            return {}
        session = dict(value)
        for alias in _CONTEXT_ALIASES:
            if alias in session:
                session.setdefault("context", session.pop(alias))
        for member in SESSION_MEMBERS:
            if session.get(member) is not None:
                session[member] = self._read_member(member, session[member])
        for key in _LIMITS:
            limit = session.get(key)
            if limit is not None and self.expect(limit, int, f"session.{key}", "integer ≥ 0 or null") and limit < 0:
                message = f"session.{key} must be integer ≥ 0 or null, got {limit}"
                self.note("wrong-type", message, f"session.{key}", fix="write a number ≥ 0, or null for no limit")
        if session.get("permission_level") is not None and not is_level(session["permission_level"]):
            message = f"There is no permission level {session.pop('permission_level')!r}"
            fix = f"write one of {', '.join(LEVELS)}"
            self.note("wrong-value", message, "session.permission_level", fix=fix)
        if session.get("raw") is not None:
            self.expect(session["raw"], bool, "session.raw", "boolean")
        return session

    def _read_member(self, member: str, value: Any) -> dict[str, Any]:
        location = f"session.{member}"
        if isinstance(value, str):
            value = {"module": value}
        if not self.expect(value, dict, location, "string or mapping"):
            return {}
        return self._read_entry(value, member, location)

    def _read_modules(self, section: str, value: Any) -> list[dict[str, Any]]:
        if not self.expect(value, list, section, "list"):
            return []
        entries = []
        for index, item in enumerate(value):
            location = f"{section}[{index}]"
            if not self.expect(item, dict, location, "mapping"):
                continue
            if not item.get("module"):
                message = f"Module entry at {location} has no 'module'"
                self.note("module-missing", message, location, fix="add module: <id>; it is left out", warning=True)
                continue
            entries.append(self._read_entry(item, section, location))
        self._note_duplicates(section, entries)
        return merge_module_lists([], entries, lists="replace", identity=partial(module_identity, section))

    def _note_duplicates(self, section: str, entries: list[dict[str, Any]]) -> None:
        seen: set[str | None] = set()
        for entry in entries:
            identity = module_identity(section, entry)
            if identity in seen:
                message = f"{section} names {identity} more than once; the entries are merged"
                fix = "write one entry" if section != "providers" else "write one entry, or give each an instance_id"
                self.note("duplicate-module", message, f"{section}[{entry['module']}]", fix=fix, warning=True)
            seen.add(identity)

    def _read_entry(self, entry: Mapping[str, Any], section: str, location: str) -> dict[str, Any]:
        read = dict(entry)
        module = read.get("module")
        if module is not None and self.expect(module, str, f"{location}.module", "string"):
            self._check_module(module, section, location)
        if read.get("config") is not None:
            self.expect(read["config"], dict, f"{location}.config", "mapping")
        if read.get("source") is not None and self.expect(read["source"], str, f"{location}.source", "string"):
            read["source"] = self._reference(read["source"], f"{location}.source")
        return read

    def _check_module(self, module: str, section: str, location: str) -> None:
        if not is_module_id(module):
            fix = "an ID has at most 100 lower-case letters, digits and hyphens"
            self.note("module-invalid", f"Invalid module ID '{module}'", f"{location}.module", fix=fix)
            return
        try:
            inferred = mount_type(module)
        except ValueError as error:
            prefixes = "loop-, context-, provider-, tool- or hooks-"
            self.note("mount-type-unknown", str(error), f"{location}.module", fix=f"an ID begins with {prefixes}")
            return
        if inferred != section:
            message = f"Module '{module}' belongs to '{inferred}' but is listed under '{section}'"
            self.note("mount-type-mismatch", message, location, fix=f"move it to {inferred}")

    def _reference(self, text: str, location: str) -> DeclaredReference:
        try:
            parse_reference(text)
        except RefResolutionError as error:
            self.note(
                "bad-ref", error.message, location, fix=error.hint or "write a reference to a path or a repository"
            )
        return DeclaredReference.of(text, self.base)

    def _read_agents(self, value: Any) -> dict[str, Any]:
        if value in ("all", "none"):
            self.replaced.add("agents")
            return {ALL_AGENTS: DeclaredReference.of("all", self.base)} if value == "all" else {}
        return self._read_named("agents", value, name_of=lambda ref: PurePosixPath(named_path(ref)).stem)

    def _read_contexts(self, value: Any) -> dict[str, Any]:
        return self._read_named("context", value, name_of=lambda ref: PurePosixPath(named_path(ref)).name)

    def _read_named(self, section: str, value: Any, *, name_of: Any) -> dict[str, Any]:
        if isinstance(value, list):
            texts = [ref for i, ref in enumerate(value) if self.expect(ref, str, f"{section}[{i}]", "string")]
            value = {name_of(ref): ref for ref in texts}
        expected = "mapping, list, all or none" if section == "agents" else "mapping or list"
        if not self.expect(value, dict, section, expected):
            return {}
        return dict(self._named_entries(section, value))

    def _named_entries(self, section: str, value: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
        for name, item in value.items():
            location = f"{section}[{name}]"
            if not is_agent_or_context_name(str(name)):
                fix = "a name begins with a letter or digit and has at most 100 letters, digits, '.', '_' and '-'"
                self.note("name-invalid", f"Invalid name '{name}' in {section}", section, fix=fix)
            elif item is None or (section == "agents" and isinstance(item, dict)):
                yield str(name), item
            elif self.expect(item, str, location, "string or mapping" if section == "agents" else "string"):
                yield str(name), self._reference(item, location)
