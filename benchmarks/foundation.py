"""What bundles cost: loading and composing 30 includes, preparing 11 modules, a system prompt, and the import.

The floor reads and parses the same files, one after the other, and does nothing with them. Run it with `make bench`, or
alone:

    python benchmarks/foundation.py [--quick] [--check]
"""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from _harness import (
    REPOSITORY,
    Child,
    Figure,
    Report,
    Row,
    Target,
    answer_requests,
    in_turn,
    seconds_until_ready,
    times,
)

from amplifier_core import AmplifierSession
from amplifier_foundation import Bundle, BundleRegistry, load_bundle
from amplifier_foundation.bundle import PreparedBundle

INCLUDES = 30
LOAD_TARGET_RATIO = 2.5

MODULES = (
    *("loop-basic", "context-simple", "provider-mock", "provider-anthropic", "provider-openai", "hooks-logging"),
    *("tool-bash", "tool-filesystem", "tool-mcp", "tool-task", "tool-web"),
)
COLD_TARGET_MS = 150
WARM_TARGET_MS = 20
BLOCK_TARGET_MS = 20

CONTEXT_FILES = 30
MENTIONED_FILES = 20
PROMPT_TARGET_MS = 5

IMPORT_TARGET_RATIO = 1.4
FLOOR_IMPORT = "import amplifier_core, yaml"

_TICK_S = 0.001
_BEHAVIOUR = """\
bundle:
  name: behaviour-{number}
  version: 1.{number}.0
  description: What behaviour {number} adds to bundles that include it.
session:
  debug: false
  limits: {{turns: {number}, tokens: 100000}}
providers:
  - module: provider-shared
    source: git+https://host.example/org/provider-shared@v1
    config: {{model_{number}: large, priority: {number}}}
tools:
  - module: tool-shared
    source: git+https://host.example/org/tool-shared@v2
    config:
      allowed_paths: [src/{number}, docs/{number}]
      timeout: {number}
  - module: tool-{number}
    source: git+https://host.example/org/repository@main#subdirectory=modules/tool-{number}
    config: {{name: tool-{number}, retries: 3, verbose: false}}
hooks:
  - module: hooks-{number}
    source: ./modules/hooks-{number}
    config:
      events: [tool:pre, tool:post, prompt:submit]
      colours: {{warning: yellow, error: red}}
agents:
  agent-{number}:
    description: Looks after part {number}.
    tools: [{{module: tool-{number}}}]
context:
  include: [context/guide-{number}.md, context/terms-{number}.md]
spawn:
  exclude_tools: [tool-task]
"""


def write_bundles(folder: Path) -> Path:
    """Write a bundle with its includes and return its file."""
    for number in range(INCLUDES):
        (folder / f"behaviour-{number}.yaml").write_text(_BEHAVIOUR.format(number=number), encoding="utf-8")
    includes = "".join(f"  - bundle: ./behaviour-{number}.yaml\n" for number in range(INCLUDES))
    root = folder / "bundle.md"
    root.write_text(f"---\nbundle: {{name: root}}\nincludes:\n{includes}---\nYou are helpful.\n", encoding="utf-8")
    return root


async def loading(root: Path) -> float:
    """Return the milliseconds to load a bundle with its includes, with a registry that knows nothing."""
    with tempfile.TemporaryDirectory() as home:
        started = time.perf_counter()
        bundle = await load_bundle(root, registry=BundleRegistry(Path(home)))
        elapsed = (time.perf_counter() - started) * 1000
    if len(bundle.tools) != INCLUDES + 1:
        sys.exit("error: not everything was loaded")
    return elapsed


async def bare_loading(root: Path) -> float:
    started = time.perf_counter()
    for file in (root, *(root.parent / f"behaviour-{number}.yaml" for number in range(INCLUDES))):
        text = file.read_text(encoding="utf-8")
        yaml.load(text.split("---\n")[1] if file.suffix == ".md" else text, yaml.CSafeLoader)
    return (time.perf_counter() - started) * 1000


def load_rows(rounds: int) -> list[Row]:
    samples: dict[str, list[float]] = {"ours": [], "floor": []}
    with tempfile.TemporaryDirectory() as directory:
        root = write_bundles(Path(directory))
        for _ in range(rounds):
            samples["ours"].append(asyncio.run(loading(root)))
            samples["floor"].append(asyncio.run(bare_loading(root)))
    figures = {side: Figure(values) for side, values in samples.items()}
    target = Target("to reading and parsing", times(figures, "ours", "floor"), LOAD_TARGET_RATIO, "×")
    return [Row(f"{INCLUDES} includes, fresh registry", "ms", figures, [target])]


async def preparing(cache_dir: Path) -> tuple[float, float]:
    """Return the milliseconds to prepare a bundle of local modules, and of the event loop's longest pause meanwhile."""
    bundle = Bundle("b", tools=[{"module": name, "source": str(REPOSITORY / "modules" / name)} for name in MODULES])
    pauses = [0.0]

    async def watch() -> None:
        before = time.perf_counter()
        while True:
            await asyncio.sleep(_TICK_S)
            before, last = time.perf_counter(), before
            pauses.append(before - last - _TICK_S)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    started = time.perf_counter()
    await bundle.prepare(strict=True, cache_dir=cache_dir)
    elapsed = time.perf_counter() - started
    await asyncio.sleep(2 * _TICK_S)
    watching.cancel()
    return elapsed * 1000, max(pauses) * 1000


def bare_preparing() -> float:
    started = time.perf_counter()
    for name in MODULES:
        tomllib.loads((REPOSITORY / "modules" / name / "pyproject.toml").read_text(encoding="utf-8"))
    return (time.perf_counter() - started) * 1000


def answer(request: dict[str, Any]) -> Any:
    """Measure a preparation in a process of its own."""
    if request["side"] == "floor":
        return [bare_preparing(), 0.0]
    return asyncio.run(preparing(Path(request["cache_dir"])))


def prepare_rows(rounds: int) -> list[Row]:
    """Measure an empty cache, then the filled one in another process, then once more in that process."""
    states = ("cold", "warm, new process", "warm, same process")
    elapsed: dict[str, list[float]] = {state: [] for state in states}
    pauses: dict[str, list[float]] = {state: [] for state in states}
    floor: list[float] = []
    command = [sys.executable, __file__, "--answer"]

    def measure(child: Child, state: str, cache_dir: str) -> None:
        taken, pause = child.ask(side="ours", cache_dir=cache_dir)
        elapsed[state].append(taken)
        pauses[state].append(pause)

    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache_dir:
            with Child(command) as child:
                measure(child, "cold", cache_dir)
            with Child(command) as child:
                measure(child, "warm, new process", cache_dir)
                measure(child, "warm, same process", cache_dir)
                floor.append(child.ask(side="floor")[0])
    rows = []
    for state in states:
        figures = {"ours": Figure(elapsed[state]), "floor": Figure(floor)}
        limit = COLD_TARGET_MS if state == "cold" else WARM_TARGET_MS
        rows.append(Row(state, "ms", figures, [Target("best", figures["ours"].best, limit, "ms")]))
    for state in states:
        figure = Figure(pauses[state])
        target = Target("best", figure.best, BLOCK_TARGET_MS, "ms")
        rows.append(Row(f"{state}: longest pause", "ms", {"ours": figure}, [target]))
    return rows


def write_context(folder: Path) -> Bundle:
    """Write a bundle's context files and return the bundle: half of what it mentions leads to another file."""
    text = "A line of guidance for the model, as long as lines are.\n" * 80
    files = [folder / f"guide-{number}.md" for number in range(CONTEXT_FILES + MENTIONED_FILES)]
    for number, file in enumerate(files):
        onwards = f"See @big:guide-{number + 1}.md for more.\n" if number % 2 else ""
        file.write_text(f"# Guide {number}\n{onwards}{text}", encoding="utf-8")
    declared = {f"big:{file.name}": file for file in files[:CONTEXT_FILES]}
    mentions = " ".join(f"@big:{file.name}" for file in files[CONTEXT_FILES - 5 : -5])
    namespaces = {f"behaviour-{number}": folder for number in range(INCLUDES)}
    return Bundle(
        "big", instruction=f"Follow {mentions}", context=declared, base_path=folder, source_base_paths=namespaces
    )


async def prompting(bundle: Bundle, rounds: int) -> list[float]:
    """Return the milliseconds that each building of a system prompt takes, after a first one."""
    session = AmplifierSession({"session": {"orchestrator": "loop-basic", "context": "context-simple"}})
    factory = PreparedBundle({}, None, bundle)._create_system_prompt_factory(bundle, session)
    await factory()
    elapsed = []
    for _ in range(rounds):
        started = time.perf_counter()
        await factory()
        elapsed.append((time.perf_counter() - started) * 1000)
    return elapsed


def bare_prompting(folder: Path) -> float:
    started = time.perf_counter()
    for file in folder.iterdir():
        file.read_text(encoding="utf-8")
    return (time.perf_counter() - started) * 1000


def prompt_rows(rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as directory:
        bundle = write_context(Path(directory))
        ours = asyncio.run(prompting(bundle, rounds))
        floor = [bare_prompting(Path(directory)) for _ in range(rounds)]
    figures = {"ours": Figure(ours), "floor": Figure(floor)}
    target = Target("best", figures["ours"].best, PROMPT_TARGET_MS, "ms")
    return [Row(f"{CONTEXT_FILES + MENTIONED_FILES} files, for every request", "ms", figures, [target])]


def import_rows(report: Report, rounds: int) -> list[Row]:
    """Measure the import as a process sees it, less what a bare interpreter takes."""

    def ready(code: str) -> Callable[[], float]:
        return lambda: seconds_until_ready(sys.executable, code) * 1000

    codes = {"ours": "import amplifier_foundation", "floor": FLOOR_IMPORT, "bare": "pass"}
    samples = in_turn(report, "import", {side: ready(code) for side, code in codes.items()}, rounds)
    bare = min(samples.get("bare", [0.0]))
    figures = {side: Figure([taken - bare for taken in values]) for side, values in samples.items() if side != "bare"}
    target = Target("to amplifier_core and yaml", times(figures, "ours", "floor"), IMPORT_TARGET_RATIO, "×")
    return [Row("import amplifier_foundation", "ms", figures, [target])]


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure bundles beside a plain reading of the same files.")
    parser.add_argument("--quick", action="store_true", help="measure for seconds instead of a minute")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if arguments.answer:
        answer_requests(answer)
        return 0
    rounds = 5 if arguments.quick else 25
    report = Report("foundation", None)
    report.add("load and compose", load_rows(rounds * 4))
    report.add(f"prepare {len(MODULES)} local modules", prepare_rows(rounds))
    report.add("system prompt", prompt_rows(rounds * 4))
    report.add("import", import_rows(report, rounds))
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
