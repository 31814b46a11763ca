"""What a module's folder says it requires."""

import logging
import re
import tomllib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

_OTHER_TRANSPORTS = ("rust", "wasm", "grpc")
_NAME = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")
_EXTRAS = re.compile(r"\s*[A-Za-z0-9._-]+\s*\[([^\]]*)\]")
_PLAIN = re.compile(r"\s*[A-Za-z0-9._-]+\s*\(?([^()\[\];@]*)\)?\s*")
_CLAUSE = re.compile(r"(~=|==|!=|<=|>=|<|>)(\d+(?:\.\d+)*)(\.\*)?")
_RELEASE = re.compile(r"\d+(?:\.\d+)*")
_COMMENT = re.compile(r"(^|\s)#.*$")


def read_requirements(directory: Path) -> tuple[str, ...]:
    """Return the requirement lines of a module's or package's folder, normalised: empty when it needs nothing.

    They are `[project].dependencies` of its `pyproject.toml`, else the lines of its `requirements.txt`. A module that
    is not written in Python has none.
    """
    if _transport_of(directory) in _OTHER_TRANSPORTS:
        return ()
    declared = read_project(directory).get("dependencies")
    if isinstance(declared, list):
        return tuple(dict.fromkeys(normalise(line) for line in declared if isinstance(line, str)))
    return tuple(dict.fromkeys(normalise(line) for line in _lines_of(directory / "requirements.txt", set())))


def read_project(directory: Path) -> dict[str, Any]:
    """Return `[project]` of a folder's `pyproject.toml`, empty when there is none."""
    project = read_toml(directory / "pyproject.toml").get("project")
    return project if isinstance(project, dict) else {}


def read_toml(file: Path) -> dict[str, Any]:
    """Return a TOML file's data; a file that is missing, or not TOML, which is warned about, has none."""
    try:
        info = file.stat()
    except OSError:
        return {}
    return _parse_toml(str(file), info.st_mtime_ns, info.st_size)


def normalise(requirement: str) -> str:
    """Return a requirement in the one form in which it is compared: `Foo_Bar >= 1` is `foo-bar>=1`."""
    text = " ".join(requirement.split())
    found = _NAME.match(text)
    if found is None:
        return text
    rest, semicolon, marker = text[found.end() :].partition("; " if "@" in text else ";")
    rest = rest.strip() if "@" in rest else rest.replace(" ", "")
    separator = " " if rest.startswith("@") else ""
    return f"{normalise_name(found[1])}{separator}{rest}{f'; {marker.strip()}' if semicolon else ''}"


def name_of(requirement: str) -> str:
    """Return the normalised name of the distribution that is required, empty when the text names none."""
    found = _NAME.match(requirement)
    return normalise_name(found[1]) if found else ""


def extras_of(requirement: str) -> frozenset[str]:
    """Return the extras that are required: `httpx2[http2]` has one."""
    found = _EXTRAS.match(requirement)
    names = found[1].split(",") if found else ()
    return frozenset(normalise_name(name.strip()) for name in names if name.strip())


def applies(requirement: str, extras: Iterable[str] = ()) -> bool:
    """Say whether a requirement counts here: for this Python and system, and for the extras that are wanted."""
    _, semicolon, marker = requirement.partition("; " if "@" in requirement else ";")
    if not semicolon:
        return True
    from packaging.markers import InvalidMarker, Marker  # loaded only where there is a marker to judge

    try:
        judged = Marker(marker.strip())
    except InvalidMarker:
        return True
    return any(judged.evaluate({"extra": extra}) for extra in ("", *extras))


def normalise_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def is_clearly_met(requirement: str, version: str) -> bool:
    """Say whether a version meets a requirement beyond doubt.

    Only plain releases and comparisons are judged here; for extras, markers, URLs and pre-releases the answer is False,
    and the installer decides.
    """
    plain = _PLAIN.fullmatch(requirement)
    if plain is None or not _RELEASE.fullmatch(version):
        return False
    clauses = [clause for part in plain[1].split(",") if (clause := part.replace(" ", ""))]
    return all((found := _CLAUSE.fullmatch(clause)) is not None and _holds(found, version) for clause in clauses)


def _holds(clause: re.Match[str], version: str) -> bool:
    operator, bound, wildcard = clause.groups()
    wanted = [int(part) for part in bound.split(".")]
    have = [int(part) for part in version.split(".")]
    width = max(len(wanted), len(have))
    left, right = (numbers + [0] * (width - len(numbers)) for numbers in (have, wanted))
    if wildcard:
        same = left[: len(wanted)] == wanted
        return {"==": same, "!=": not same}.get(operator, False)
    if operator == "~=":
        return len(wanted) > 1 and left >= right and left[: len(wanted) - 1] == wanted[:-1]
    return {
        "==": left == right,
        "!=": left != right,
        "<=": left <= right,
        ">=": left >= right,
        "<": left < right,
        ">": left > right,
    }[operator]


def _transport_of(directory: Path) -> Any:
    section = read_toml(directory / "amplifier.toml").get("module")
    return section.get("transport") if isinstance(section, dict) else None


@lru_cache(maxsize=1024)
def _parse_toml(file: str, modified_ns: int, size: int) -> dict[str, Any]:
    """Parse a file, once for each version of it."""
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        logger.warning("%s is not readable and counts as absent: %s", file, error)
        return {}


def _lines_of(file: Path, seen: set[Path]) -> list[str]:
    if file in seen or not file.is_file():
        return []
    seen.add(file)
    lines: list[str] = []
    for written in file.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        line = _COMMENT.sub("", written).strip()
        if included := re.fullmatch(r"(?:-r|--requirement)[\s=]+(.+)", line):
            lines += _lines_of(file.parent / included[1].strip(), seen)
        elif line.startswith("-") or (line and not _NAME.match(line)):
            logger.warning("%s: %r is not a requirement of a distribution and is left out", file, line)
        elif line:
            lines.append(line)
    return lines
