"""The page "The house": the packages, their rooms, what each may import, and the ways through them."""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"

HEAD = """\
# The house

<!-- Generated from the import contracts, the packages and their functions: make pages -->

Imports point downwards: a line may import what stands below it, and nothing beside it or above. `make imports` holds
this; the contracts are in `pyproject.toml`.

## Packages

| Package | Holds |
|---|---|
"""

ROOMS_HEAD = """
## Rooms of the daemon's library

`amplifierd` is the library that the command, the daemon and programs of your own use. From the top down:

| Room or file | Holds |
|---|---|
"""

WAYS_HEAD = """
## Ways through the house

Each step is a function, in the order in which they are reached; follow them to read a way from its beginning.
"""

WAYS = {
    "A prompt, typed at a terminal": (
        ("amplifier_cli/commands:run", "flags and settings become an agent"),
        ("chosen_agent", "its profile is made sure of, once"),
        ("OpenSessions.open", "a session is asked for"),
        ("Creation.prepare", "record and plan"),
        ("ExecutionRunner.start", "the plan becomes a kernel session"),
        ("AmplifierSession.initialize", "its modules are mounted"),
        ("Session.stream", "the prompt waits for its turn"),
        ("amplifierd:Turn.run", "one turn, recorded from its first event to its end"),
        ("LoopOrchestrator.execute", "the loop asks the provider and calls tools"),
    ),
    "A prompt, sent to the daemon": (
        ("RequestGuard.__call__", "who asks, and whether they may"),
        ("amplifierd:execute", "the endpoint"),
        ("Workers.submit", "the worker that has the session, or gets it"),
        ("WorkerMethods.submit", "in the worker's process"),
        ("Session.submit", "from here on as at a terminal"),
    ),
    "An event": (
        ("HookRegistry.emit", "modules hear it"),
        ("Journal.hear", "it is numbered and masked"),
        ("TreeEvents.add", "it is stored, then published, in the order of its tree"),
        ("Outbox.put_event", "it leaves the worker as the JSON that clients get"),
        ("EventHub.publish", "the daemon hands it to whoever watches"),
        ("EventStreamResponse", "a frame of a stream"),
    ),
    "A profile": (
        ("Catalogue.ensure_profile", "its collection is fetched and its text extracted"),
        ("resolve_profile", "it is merged with what it extends"),
        ("Profiles.compile", "the build that exists is used if it is fresh"),
        ("Compilation.run", "else resources are located, copied and locked"),
        ("Plans.generate", "a build becomes a mount plan"),
    ),
}


def house_page() -> str:
    """The whole page."""
    contracts = {each["name"]: each for each in _configuration()["contracts"]}
    packages = contracts["Layers point downwards; modules know only the kernel and the kit"]["layers"]
    rooms = contracts["Inside the daemon imports point downwards"]["layers"]
    page = HEAD + "".join(f"| {_spelled(line)} | {_docstrings(line, SRC)} |\n" for line in packages)
    page += ROOMS_HEAD + "".join(_rows(line, SRC / "amplifierd") for line in rooms)
    return page + WAYS_HEAD + "".join(_way(title, steps) for title, steps in WAYS.items())


def _configuration() -> dict[str, Any]:
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, Any] = whole["tool"]["importlinter"]
    return found


def _spelled(line: str) -> str:
    return ", ".join(f"`{name.strip()}`" for name in line.split("|"))


def _docstrings(line: str, folder: Path) -> str:
    return " ".join(_docstring(folder / name.strip()) for name in line.split("|"))


def _docstring(path: Path) -> str:
    """The first paragraph of the docstring of a file or package."""
    file = next((each for each in (path / "__init__.py", path.with_suffix(".py")) if each.exists()), None)
    if file is None:
        return "One folder for each module." if path.name.endswith("*") else ""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")


def _rows(line: str, folder: Path) -> str:
    """The rows of a layer: a room with the rooms in it, and files that stand alone together."""
    rows = ""
    for name in (each.strip() for each in line.split("|")):
        path = folder / name
        rows += f"| `{name}` | {_docstring(path)} |\n"
        inner = sorted(each.parent for each in path.glob("*/__init__.py")) if path.is_dir() else []
        rows += "".join(f"| `{name}/{each.name}` | {_docstring(each)} |\n" for each in inner)
    return rows


def _way(title: str, steps: tuple[tuple[str, str], ...]) -> str:
    rows = "".join(f"| `{name.partition(':')[2] or name}` | `{_file_of(name)}` | {what} |\n" for name, what in steps)
    return f"\n### {title}\n\n| Function | File | What happens |\n|---|---|---|\n{rows}"


def _file_of(name: str) -> str:
    """The file that defines a function or class; `folder:name` says where it is looked for."""
    package, _, wanted = name.rpartition(":")
    found = [file for file in _definitions()[wanted] if not package or file.startswith(f"src/{package}/")]
    if len(found) != 1:
        raise SystemExit(f"scripts/house_page.py: {name} is defined in {len(found)} files: name the step as it is now")
    return found[0]


@cache
def _definitions() -> dict[str, list[str]]:
    known = defaultdict(list)
    for path in sorted(SRC.rglob("*.py")):
        for defined in _defined(ast.parse(path.read_text(encoding="utf-8"))):
            known[defined].append(path.relative_to(ROOT).as_posix())
    return known


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield node.name
            yield from (
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            )
