"""Reading a script from a file: YAML or JSON, told apart by the suffix."""

import importlib
import json
from pathlib import Path
from typing import Any

from amplifier_core.llm_errors import ConfigurationError

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
