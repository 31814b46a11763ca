"""One skill, as its `SKILL.md` describes it: front matter by the rules of the Agent Skills standard, and a body."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Severity = Literal["error", "warning"]

FILE = "SKILL.md"
_LONGEST_FILE = 1 << 20
_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)(?:\r?\n)?^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_SHORTCUT = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_COLON = re.compile(r"^(description:[ \t]+)([^\"'|>\[{\s].*:.*)$", re.MULTILINE)
_LONGEST = {"name": 64, "description": 1024, "compatibility": 500, "argument-hint": 1024}
_STANDARD = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What is wrong with a skill or a source of skills, where, and by which rule."""

    path: str
    field: str
    rule: str
    severity: Severity
    message: str

    def to_dict(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True)
class SkillMetadata:
    """What the front matter of a skill says, and where it comes from; `trusted` is a property of its source."""

    name: str
    description: str
    path: Path
    source: str
    version: str | None = None
    license: str | None = None
    compatibility: str | None = None
    allowed_tools: tuple[str, ...] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    context: str | None = None
    agent: str | None = None
    model: str | None = None
    model_role: str | tuple[str, ...] | None = None
    provider_preferences: tuple[Mapping[str, Any], ...] = ()
    user_invocable: bool = False
    disable_model_invocation: bool = False
    auto_load: bool = False
    shortcut: str | None = None
    argument_hint: str | None = None
    hooks: Mapping[str, Any] | None = None
    trusted: bool = False
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def directory(self) -> Path:
        return self.path.parent

    @property
    def is_fork(self) -> bool:
        return self.context == "fork"


def parse_skill_frontmatter(path: Path) -> dict[str, Any] | None:
    """Return the front matter of a file, None where it has none that can be read."""
    try:
        return read_front(read_text(path))[0]
    except ValueError:
        return None


def extract_skill_body(path: Path) -> str | None:
    """Return what stands below the front matter, None where the file cannot be read."""
    try:
        text = read_text(path)
    except ValueError:
        return None
    front = _FRONT.match(text)
    return text[front.end() :].strip() if front else None


def read_text(path: Path) -> str:
    """Return the text of a file; raises `ValueError`."""
    try:
        if not path.is_file():
            raise ValueError("it is no regular file")
        if path.stat().st_size > _LONGEST_FILE:
            raise ValueError("it is longer than 1 MiB")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(error.strerror or "it cannot be read") from error


def read_front(text: str) -> tuple[dict[str, Any], bool]:
    """Return the front matter, and whether its description had to be put in quotes to be read; raises `ValueError`."""
    import yaml  # only where there is a skill

    front = _FRONT.match(text)
    if front is None:
        raise ValueError("it does not begin with front matter between two lines `---`")
    repaired = _COLON.sub(lambda found: found[1] + "'" + found[2].strip().replace("'", "''") + "'", front[1])
    for number, candidate in enumerate(dict.fromkeys((front[1], repaired))):
        try:
            data = yaml.safe_load(candidate)
        except (yaml.YAMLError, RecursionError):
            continue
        if isinstance(data, dict):
            return data, number > 0
    raise ValueError("its front matter is not a mapping in YAML")


def parse_skill(
    path: Path, source: str, *, trusted: bool, is_root: bool = False, strict: bool = False
) -> tuple[SkillMetadata | None, list[Diagnostic]]:
    """Return the skill that a file describes, None where it cannot be loaded, and everything that is wrong with it.

    `is_root` says that the file is the root of its source, so that its directory need not have its name; with `strict`
    whatever breaks the standard keeps a skill from being loaded.
    """
    try:
        data, is_repaired = read_front(read_text(path))
    except ValueError as error:
        return None, [Diagnostic(str(path), "front matter", "readable", "error", f"the skill is skipped: {error}")]
    reader = _Reader(path, data, strict)
    if is_repaired:
        reader.report("description", "quoted", "a text with a colon needs quotes around it")
    skill = reader.read(source, trusted=trusted, is_root=is_root)
    if skill is not None and strict and any(found.severity == "error" for found in reader.found):
        skill = None
    return skill, reader.found


class _Reader:
    """Reads the fields of one front matter, and keeps what is wrong with them."""

    def __init__(self, path: Path, data: Mapping[Any, Any], strict: bool) -> None:
        self._path, self._data, self._strict = path, data, strict
        self.found: list[Diagnostic] = []

    def report(self, name: str, rule: str, message: str, *, is_fatal: bool = False) -> None:
        """Note a violation: an error where the skill is skipped for it."""
        is_error = is_fatal or (self._strict and name in _STANDARD)
        self.found.append(Diagnostic(str(self._path), name, rule, "error" if is_error else "warning", message))

    def read(self, source: str, *, trusted: bool, is_root: bool) -> SkillMetadata | None:
        name, description = self._required("name"), self._required("description")
        if not name or not description:
            return None
        name = unicodedata.normalize("NFKC", name)
        self._check_name(name, is_root=is_root)
        context = self._text("context")
        if context not in (None, "fork"):
            self.report("context", "choice", f"context is {context!r}, only `fork` has a meaning; it is ignored")
            context = None
        hooks = self._mapping("hooks")
        return SkillMetadata(
            name=name,
            description=description,
            path=self._path,
            source=source,
            version=self._text("version", takes_number=True),
            license=self._text("license"),
            compatibility=self._text("compatibility"),
            allowed_tools=self._allowed_tools(),
            metadata=self._metadata(),
            context=context,
            agent=self._text("agent"),
            model=self._text("model"),
            model_role=self._roles(),
            provider_preferences=self._preferences(),
            user_invocable=self._flag("user-invocable"),
            disable_model_invocation=self._flag("disable-model-invocation"),
            auto_load=self._flag("auto-load"),
            shortcut=self._shortcut(),
            argument_hint=self._hint(),
            hooks=hooks or None,
            trusted=trusted,
            diagnostics=tuple(self.found),
        )

    def _get(self, name: str) -> Any:
        return self._data.get(name, self._data.get(name.replace("-", "_"), self._data.get(name.replace("_", "-"))))

    def _required(self, name: str) -> str:
        value = self._data.get(name)
        text = value.strip() if isinstance(value, str) else ""
        if not text:
            self.report(name, "required", f"the skill is skipped: {name} must be a text", is_fatal=True)
        elif len(text) > _LONGEST[name]:
            self.report(name, "length", f"{name} has {len(text)} characters, the most is {_LONGEST[name]}")
        return text

    def _check_name(self, name: str, *, is_root: bool) -> None:
        if not _NAME.fullmatch(name) or name != name.lower():
            self.report("name", "characters", f"{name!r} is not lowercase letters and digits with single hyphens")
        directory = unicodedata.normalize("NFKC", self._path.parent.name)
        if not is_root and name != directory:
            self.report("name", "directory", f"the name is {name!r}, but the directory is {directory!r}")

    def _text(self, name: str, *, takes_number: bool = False) -> str | None:
        value = self._get(name)
        if takes_number and isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if value is None or isinstance(value, str):
            if value and len(value) > _LONGEST.get(name, len(value)):
                self.report(name, "length", f"{name} has {len(value)} characters, the most is {_LONGEST[name]}")
            return value or None
        self.report(name, "type", f"{name} must be a text; it is ignored")
        return None

    def _flag(self, name: str) -> bool:
        value = self._get(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.report(name, "type", f"{name} must be true or false; false counts")
        return False

    def _mapping(self, name: str) -> dict[str, Any]:
        value = self._get(name)
        if value is None or isinstance(value, Mapping):
            return {str(key): item for key, item in (value or {}).items()}
        self.report(name, "type", f"{name} must be a mapping; it is ignored")
        return {}

    def _metadata(self) -> dict[str, Any]:
        found = self._mapping("metadata")
        if not all(isinstance(value, str) for value in found.values()):
            self.report("metadata", "type", "the values of metadata must be texts")
        return found

    def _list(self, name: str, is_item: Callable[[Any], bool], what: str) -> tuple[Any, ...]:
        value = self._get(name)
        if value is None:
            return ()
        if isinstance(value, list) and all(map(is_item, value)):
            return tuple(value)
        self.report(name, "type", f"{name} must be a list of {what}; it is ignored")
        return ()

    def _allowed_tools(self) -> tuple[str, ...] | None:
        value = self._get("allowed-tools")
        if value is None:
            return None
        if isinstance(value, str):
            return tuple(_entries(value))
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self.report("allowed-tools", "type", "allowed-tools must be texts; the skill is given no tool for it")
        return ()

    def _roles(self) -> str | tuple[str, ...] | None:
        value = self._get("model_role")
        if value is None or isinstance(value, str):
            return value or None
        return self._list("model_role", lambda item: isinstance(item, str), "texts") or None

    def _preferences(self) -> tuple[Mapping[str, Any], ...]:
        def is_preference(item: Any) -> bool:
            return isinstance(item, Mapping) and all(isinstance(item.get(key), str) for key in ("provider", "model"))

        return self._list("provider_preferences", is_preference, "mappings with `provider` and `model`")

    def _shortcut(self) -> str | None:
        value = self._get("shortcut")
        if value is None:
            return None
        if isinstance(value, str) and _SHORTCUT.fullmatch(value):
            return value.lower()
        self.report("shortcut", "characters", f"{value!r} is no shortcut; the skill has none")
        return None

    def _hint(self) -> str | None:
        value = self._get("argument-hint")
        if isinstance(value, list):  # `[VERSION]` without quotes
            value = "[" + ", ".join(map(str, value)) + "]"
        if value is None:
            return None
        if isinstance(value, str) and value.isprintable() and 0 < len(value) <= _LONGEST["argument-hint"]:
            return value
        self.report("argument-hint", "characters", "argument-hint must be one printable line; it is ignored")
        return None


def _entries(text: str) -> Iterator[str]:
    """Yield the entries of a list in a text; white space and commas within parentheses do not part them."""
    return (found[0] for found in re.finditer(r"[^\s,()]+(?:\([^)]*\))?", text))
