"""What the life of a profile costs, against the number of its modules and of the profiles beside it.

The floor reads the same texts, parses them, and looks at the same files. Run it with `make bench`, or alone:

    python benchmarks/profiles.py [--quick] [--check]
"""

import argparse
import asyncio
import json
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from _harness import Figure, Report, Row, Target

from amplifier_foundation.io import parse_frontmatter
from amplifierd import Home, open_home

Measurement = Callable[[Path], Coroutine[Any, Any, float]]
Targets = Mapping[int, Sequence[tuple[str, int | None, float]]]  # size → what is judged, beside which size, and limit

MODULES = (5, 11, 22, 44)
PROFILES = (1, 10, 100)
UNCHANGED_TARGET_MS = 20
COLD_TARGET_MS = 150
FLAT = 1.5  # how many times longer it may take with ten times as many profiles beside it
LINEAR = 3.0  # how many times longer twice as many modules may take; quadratic work would take four times
FILES_PER_MODULE = 8

MODULE = """
async def mount(coordinator, config=None):
    pass
"""


def write_collection(root: Path, *, modules: int, profiles: int = 1) -> None:
    """Write a collection: a parent with every module, each a folder of several files, and profiles that extend it."""
    module_ids = ["loop-bench", "context-bench", "provider-bench", *(f"tool-bench{n}" for n in range(modules - 3))]
    for module_id in module_ids:
        package = root / "modules" / module_id / f"amplifier_module_{module_id.replace('-', '_')}"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(MODULE)
        for number in range(1, FILES_PER_MODULE):
            (package / f"part{number}.py").write_text(f"VALUE = {number}\n" + "# a line of a module\n" * 200)
    (root / "profiles").mkdir()
    entry = "{{module: {0}, source: ../modules/{0}, config: {{size: 1}}}}".format
    tools = "".join(f"- {entry(module_id)}\n" for module_id in module_ids[3:])
    (root / "profiles/parent.md").write_text(
        "---\nprofile: {name: parent, version: 1.0.0, schema_version: 2}\n"
        f"session:\n  orchestrator: {entry('loop-bench')}\n  context: {entry('context-bench')}\n"
        f"providers:\n- {entry('provider-bench')}\ntools:\n{tools}---\nYou work.\n"
    )
    for number in range(profiles):
        (root / f"profiles/p{number}.md").write_text(
            f"---\nprofile: {{name: p{number}, version: 1.0.0, schema_version: 2, extends: parent}}\n"
            "session:\n  orchestrator: {config: {size: 2}}\n---\n"
        )


async def prepared(folder: Path) -> Home:
    """Return a home whose collection `bench` is the one in `folder`, with the profile `bench/p0` compiled."""
    home = open_home(folder / "home", offline=True)
    await home.collections.add("bench", str(folder / "collection"), compile=False)
    await home.profiles.compile("bench/p0")
    return home


async def unchanged(folder: Path) -> float:
    """Return the milliseconds of a compile that finds nothing to do, in a home that was just opened."""
    started = time.perf_counter()
    build = await open_home(folder / "home", offline=True).profiles.compile("bench/p0")
    elapsed = (time.perf_counter() - started) * 1000
    if build.status != "fresh":
        sys.exit(f"error: the build is {build.status}")
    return elapsed


async def bare_unchanged(folder: Path) -> float:
    """Return the milliseconds to read both texts and the lock, and to look at every file of the modules."""
    profiles = folder / "home/share/profiles/bench"
    started = time.perf_counter()
    for name in ("p0", "parent"):
        parse_frontmatter((profiles / name / "profile.md").read_text())
    json.loads((profiles / "p0/profile.lock").read_bytes())
    seen = sum(path.lstat().st_size for path in (folder / "collection/modules").rglob("*"))
    elapsed = (time.perf_counter() - started) * 1000
    return elapsed if seen else 0.0


async def cold(folder: Path) -> float:
    """Return the milliseconds of the first compile in a new home."""
    target = folder / "cold"
    home = open_home(target, offline=True)
    await home.collections.add("bench", str(folder / "collection"), compile=False)
    started = time.perf_counter()
    await home.profiles.compile("bench/p0")
    elapsed = (time.perf_counter() - started) * 1000
    shutil.rmtree(target)
    return elapsed


async def bare_cold(folder: Path) -> float:
    """Return the milliseconds to copy the modules."""
    target = folder / "copy"
    started = time.perf_counter()
    shutil.copytree(folder / "collection/modules", target)
    elapsed = (time.perf_counter() - started) * 1000
    shutil.rmtree(target)
    return elapsed


async def generation(folder: Path) -> float:
    """Return the milliseconds of a mount plan, the check of its profile included, in a home that was just opened."""
    started = time.perf_counter()
    await open_home(folder / "home", offline=True).plans.generate("bench/p0")
    return (time.perf_counter() - started) * 1000


async def syncing(folder: Path) -> float:
    """Return the milliseconds of a sync that finds nothing new."""
    started = time.perf_counter()
    results = await open_home(folder / "home", offline=True).collections.sync(["bench"], compile=False)
    elapsed = (time.perf_counter() - started) * 1000
    if results["bench"].status != "unchanged":
        sys.exit(f"error: the collection is {results['bench'].status}")
    return elapsed


async def shipped(folder: Path) -> float:
    """Return the milliseconds of a compile of the shipped profile with the most modules, nothing changed."""
    started = time.perf_counter()
    await open_home(folder / "home", offline=True).profiles.compile("foundation/coding")
    return (time.perf_counter() - started) * 1000


def measured(
    folders: Mapping[int, Path], sides: Mapping[str, Measurement], rounds: int
) -> dict[int, dict[str, Figure]]:
    """Measure sizes and sides in turn, after one round to warm up, so that a busy machine slows all of them."""
    samples = {size: {side: list[float]() for side in sides} for size in folders}
    for number in range(rounds + 1):
        for size, folder in folders.items():
            for side, measure in sides.items():
                elapsed = asyncio.run(measure(folder))
                if number:
                    samples[size][side].append(elapsed)
    return {size: {side: Figure(values) for side, values in of.items()} for size, of in samples.items()}


def rows(
    folders: Mapping[int, Path],
    noun: str,
    sides: Mapping[str, Measurement],
    *,
    rounds: int,
    targets: Targets,
) -> list[Row]:
    """Measure every size; a target is a limit in milliseconds, or how many times another size's best it may be."""
    figures = measured(folders, sides, rounds)
    best = {size: figures[size]["ours"].best for size in folders}
    found: list[Row] = []
    for size in folders:
        judged = [
            Target(text, best[size] / best[other] if other else best[size], limit, "×" if other else "ms")
            for text, other, limit in targets.get(size, ())
        ]
        found.append(Row(f"{size} {noun}", "ms", figures[size], judged))
    return found


def make_folders(root: Path) -> tuple[dict[int, Path], dict[int, Path]]:
    """Make the homes to measure in: by the number of modules, and by the number of profiles."""
    by_modules = {size: root / f"modules-{size}" for size in MODULES}
    by_profiles = {size: root / f"profiles-{size}" for size in PROFILES}
    for size, folder in by_modules.items():
        write_collection(folder / "collection", modules=size)
    for size, folder in by_profiles.items():
        write_collection(folder / "collection", modules=11, profiles=size)
    for folder in (*by_modules.values(), *by_profiles.values()):
        asyncio.run(prepared(folder))
    return by_modules, by_profiles


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure compiling, planning and syncing of profiles.")
    parser.add_argument("--quick", action="store_true", help="measure for seconds instead of a minute")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    rounds = 3 if arguments.quick else 20
    report = Report("profiles", None)
    linear: Targets = {44: [("to half as many", 22, LINEAR)]}
    flat: Targets = {100: [("to a tenth", 10, FLAT)]}
    ours = {"ours": unchanged, "floor": bare_unchanged}
    with tempfile.TemporaryDirectory(prefix="bench-profiles-") as temporary:
        by_modules, by_profiles = make_folders(Path(temporary))
        limits: Targets = {11: [("best", None, UNCHANGED_TARGET_MS)], **linear}
        report.add("compile, nothing changed", rows(by_modules, "modules", ours, rounds=rounds, targets=limits))
        report.add("compile, beside others", rows(by_profiles, "profiles", ours, rounds=rounds, targets=flat))
        few = max(2, rounds // 4)
        first = {"ours": cold, "floor": bare_cold}
        limits = {11: [("best", None, COLD_TARGET_MS)], **linear}
        report.add("compile, first time", rows(by_modules, "modules", first, rounds=few, targets=limits))
        plan = {"ours": generation}
        report.add("generate a plan", rows(by_modules, "modules", plan, rounds=rounds, targets=linear))
        report.add("sync, nothing new", rows(by_profiles, "profiles", {"ours": syncing}, rounds=rounds, targets={}))
        largest = {13: by_modules[5]}
        limits = {13: [("best", None, UNCHANGED_TARGET_MS)]}
        installed = rows(largest, "installed modules", {"ours": shipped}, rounds=rounds, targets=limits)
        report.add("compile foundation/coding, nothing changed", installed)
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
