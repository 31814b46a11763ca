"""Where the values of a build's plan come from: told when it is compiled, from the texts it is compiled from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from amplifier_core.mount_plan import MODULE_SECTIONS
from amplifier_foundation.provenance import parse_path
from amplifierd.identifiers import LOCAL
from amplifierd.paths import Paths
from amplifierd.profiles.documents.document import ALL_AGENTS, module_identity
from amplifierd.profiles.documents.inheritance import DEFAULTS, REPLACING, MergedProfile

INSTRUCTION = "instruction"
"""The key path of what is in no plan: the profile's own words."""

POLICY = ("session", "policy")
"""The steps to the session's policy: of its lists every entry has an origin, since refusals name it."""

_NOBODY = {"profile": DEFAULTS, "file": None, "line": None}


def find_origins(merged: MergedProfile, plan: Mapping[str, Any], paths: Paths) -> dict[str, Any]:
    """Return, for the key path of every value of a plan, `{origin{profile, file, line}, overrode[]}`.

    Files are named as they are in any home: `config/profiles/mine.md`, `share/profiles/team/base/profile.md`.
    """
    files = _portable_files(merged, paths)
    steps = [*(each for each, _ in _steps_in(plan)), *([(INSTRUCTION,)] if merged.body else [])]
    return {key_path(each): _find_origin(merged, key_path(each), files) for each in steps}


def key_path(steps: Sequence[str]) -> str:
    """Return the key path of some steps, in the one spelling in which origins are stored."""
    text = steps[0]
    for index, step in enumerate(steps[1:], 1):
        is_entry = index == 1 and steps[0] in MODULE_SECTIONS
        text += f"[{step}]" if is_entry or "." in step else f".{step}"
    return text


def single_values(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan's single values by key path, without the mappings and sections around them."""
    found = ((steps, value) for steps, value in _steps_in(plan) if len(steps) > 1 and not isinstance(value, Mapping))
    return {key_path(steps): value for steps, value in found}


def origin_at(origins: Mapping[str, Any], steps: Sequence[str]) -> Mapping[str, Any]:
    """Return the origin of a value, or of the nearest one above it that has one."""
    for length in range(len(steps), 0, -1):
        if (found := origins.get(key_path(steps[:length]))) is not None:
            return dict(found)
    return {"origin": dict(_NOBODY), "overrode": []}


def replaced_sources(origins: Mapping[str, Any]) -> dict[str, str]:
    """Return the sources that installed modules take the place of, by module."""
    found = {parse_path(path): known for path, known in origins.items() if known["origin"]["profile"] == REPLACING}
    return {steps[-2]: known["overrode"][-1]["value"] for steps, known in found.items()}


def declaring_paths(path: str) -> Iterator[str]:
    """Yield where a profile may say what a plan has at a path: an agent is made from what declares it."""
    yield path
    steps = parse_path(path)
    if steps[0] == "agents" and len(steps) > 1:
        yield f"agents[{steps[1]}]"
        yield f"agents[{ALL_AGENTS}]"


def at_home(origin: Mapping[str, Any], paths: Paths) -> dict[str, Any]:
    """Return a stored origin with the file's place in this home."""
    file = origin["file"]
    if file is not None:
        part, _, rest = str(file).partition("/")
        file = str({"config": paths.config, "share": paths.share}[part] / rest)
    return {**origin, "file": file}


def _find_origin(merged: MergedProfile, path: str, files: Mapping[str, str]) -> dict[str, Any]:
    for declared in declaring_paths(path):
        try:
            explained = merged.explain(declared)
        except KeyError:
            continue
        if explained["origin"]["profile"] is not None:
            portable = partial(_portable, files=files)
            overrode = [{**old, "origin": portable(old["origin"])} for old in explained["overrode"]]
            return {"origin": portable(explained["origin"]), "overrode": overrode}
    return {"origin": dict(_NOBODY), "overrode": []}


def _portable(origin: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    return {**origin, "file": files.get(origin["file"])}


def _portable_files(merged: MergedProfile, paths: Paths) -> dict[str, str]:
    """Return the files that a profile was made from, each with its name in any home."""
    found = {}
    for document in (*merged.ancestors, merged.document):
        known = document.profile_id
        own = known.collection == LOCAL and document.path.is_relative_to(paths.config)
        portable = _below(document.path, paths.config, "config") if own else f"share/profiles/{known}/profile.md"
        found[str(document.path)] = portable
    overlay = paths.overlay_file(merged.profile_id)
    return {**found, str(overlay): _below(overlay, paths.config, "config")}


def _below(path: Path, directory: Path, name: str) -> str:
    return f"{name}/{path.relative_to(directory).as_posix()}"


def _steps_in(value: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every value of a plan with the way to it; what cannot be written as a key path belongs to what is above."""
    if isinstance(value, Mapping):
        pairs = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and above[: len(POLICY)] == POLICY:
        pairs = [(str(item), item) for item in value]
    elif isinstance(value, list) and len(above) == 1 and above[0] in MODULE_SECTIONS:
        pairs = [(module_identity(above[0], item) or "", item) for item in value]
    else:
        return
    for step, item in pairs:
        if step and not any(mark in step for mark in "[]"):
            yield (*above, step), item
            yield from _steps_in(item, (*above, step))
