"""A script: steps that are used up one after another, each when its conditions hold."""

import asyncio
import importlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amplifier_core.llm_errors import ConfigurationError, InvalidRequestError

from .entries import Entry
from .faults import Conditions, TurnView

ON_EXHAUSTED = ("repeat_last", "rotate", "error", "canned")

_TEMPLATE = re.compile(r"\{\{\s*(last_user|last_tool_result|call_count)\s*\}\}")
_STEP_KEYS = ("when", "assert", "repeat")


@dataclass(frozen=True, slots=True)
class Step:
    """One answer, when it is used, and what it insists on."""

    entry: Entry
    when: Conditions
    expectation: Conditions
    repeats: bool

    @classmethod
    def parse(cls, given: Any) -> "Step":
        """Read an answer, with `when`, `assert` and `repeat` beside it; raises `TypeError` or `ValueError`."""
        fields = dict(given) if isinstance(given, Mapping) else {}
        when, expectation, repeats = (fields.pop(key, None) for key in _STEP_KEYS)
        if repeats not in (None, True, False):
            raise ValueError(f"'repeat' is true or false, got {repeats!r}")
        return cls(
            entry=Entry.parse(fields if isinstance(given, Mapping) else given),
            when=Conditions.parse(when),
            expectation=Conditions.parse(expectation, allow_tools=True),
            repeats=bool(repeats),
        )


class Script:
    """The steps of one provider, given in the configuration or in a file, which is read at the first call."""

    def __init__(self, source: list[Any] | Path, on_exhausted: str) -> None:
        self._source = source
        self._on_exhausted = on_exhausted
        self._steps: list[Step] | None = None
        self._used: set[int] = set()
        self._reading = asyncio.Lock()

    async def next(self, view: TurnView) -> Entry | None:
        """Return the answer of the next step, its templates filled in; None leaves it to the canned answers."""
        steps = await self._read()
        found = self._find(steps, view)
        if found is None:
            found = self._after_the_last(steps, view)
        if found is None:
            return None
        place = found + 1
        if problem := steps[found].expectation.broken(view):
            raise InvalidRequestError(f"step {place} of the script expects {problem}", provider="mock")
        return steps[found].entry.with_texts(lambda text: _fill(text, view))

    def _find(self, steps: list[Step], view: TurnView) -> int | None:
        for place, step in enumerate(steps):
            if place not in self._used and step.when.broken(view) is None:
                if not step.repeats:
                    self._used.add(place)
                return place
        return None

    def _after_the_last(self, steps: list[Step], view: TurnView) -> int | None:
        match self._on_exhausted:
            case "repeat_last" if steps:
                return len(steps) - 1
            case "rotate":
                self._used.clear()
                if (found := self._find(steps, view)) is not None:
                    return found
            case "canned":
                return None
        message = f"the script has no step left for call {view.call_number}; it has {len(steps)} steps"
        raise InvalidRequestError(message, provider="mock")

    async def _read(self) -> list[Step]:
        async with self._reading:
            if self._steps is None:
                source = self._source
                given = await asyncio.to_thread(load_script, source) if isinstance(source, Path) else source
                self._steps = _parse(given, str(source) if isinstance(source, Path) else "config key 'script'")
            return self._steps


def _parse(given: Any, place: str) -> list[Step]:
    if not isinstance(given, list):
        raise ConfigurationError(f"{place}: a script is a list of steps, got {type(given).__name__}", provider="mock")
    steps = []
    for number, item in enumerate(given, start=1):
        try:
            steps.append(Step.parse(item))
        except (TypeError, ValueError) as exc:
            raise ConfigurationError(f"{place}, step {number}: {exc}", provider="mock") from exc
    return steps


def _fill(text: str, view: TurnView) -> str:
    values = {
        "last_user": view.user_text,
        "last_tool_result": view.last_tool_result,
        "call_count": str(view.call_number),
    }
    return _TEMPLATE.sub(lambda match: values[match[1]], text)


# Reading a script from a file: YAML or JSON, told apart by the suffix.


_SUFFIXES = (".yaml", ".yml", ".json")


def load_script(path: Path) -> Any:
    """Return what the file holds; raises `ConfigurationError`. Blocks, so it belongs in a worker thread."""
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise unusable(path, f"a script ends in {', '.join(_SUFFIXES)}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise unusable(path, _reason(exc)) from exc
    return _read_json(path, text) if suffix == ".json" else _read_yaml(path, text)


def unusable(path: Path, reason: str, *, line: int | None = None) -> ConfigurationError:
    """Return the error for a file that cannot be used."""
    place = str(path) if line is None else f"{path}, line {line}"
    return ConfigurationError(f"{place}: {reason}", provider="mock")


def _read_json(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        raise unusable(path, exc.msg, line=exc.lineno) from exc


def _read_yaml(path: Path, text: str) -> Any:
    try:
        # The one package beyond the kernel and the kit, needed only by those who write scripts in YAML.
        yaml = importlib.import_module("yaml")
    except ImportError as exc:
        raise unusable(path, "PyYAML is not installed; install it, or write the script as JSON") from exc
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        reason = getattr(exc, "problem", None) or str(exc)
        raise unusable(path, reason, line=None if mark is None else mark.line + 1) from exc


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
