"""The files around the code: verbs, version, pins, and nothing of anybody's machine."""

import os
import re
import subprocess
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from amplifier_core import __version__
from amplifier_core._version import ECOSYSTEM_VERSION

ROOT = Path(__file__).parents[2]

VERBS = {
    "help", "install", "run", "test", "suite", "check", "format", "lint", "types", "imports",
    "serve", "pages", "pictures", "bench", "compat", "soak", "simulate", "fuzz", "clean",
}  # fmt: skip

PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.!+_]*)")

# Written so that no pattern matches its own text.
MACHINE = {
    "a package registry": re.compile(
        r"\b(?:pypi\.org|pythonhosted\.org|npmjs\.(?:com|org)|yarnpkg\.com|crates\.io|anaconda\.org|devpi\.net|"
        r"ghcr\.io|docker\.io|pkg\.dev|jfrog\.io)\b"
    ),
    "a home directory": re.compile(r"(?<![\w.~})-])(?:/(?:home|Users)/\w|/roo[t]/|[A-Z]:\\Users\\)"),
    "this checkout": re.compile(rf"{re.escape(str(ROOT))}/(?:\.venv|[a-z]+)/"),
}


def pins(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    found = [PIN.fullmatch(line) for line in lines]
    assert all(found), [line for line, match in zip(lines, found, strict=True) if not match]
    return {canonicalize_name(match[1]): match[2] for match in found if match}


@pytest.mark.parametrize("arguments", [[], ["help"]], ids=["make", "make help"])
def test_make_lists_its_verbs(arguments: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    run = subprocess.run(["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)

    listed = dict(line.split(maxsplit=1) for line in run.stdout.splitlines())

    assert listed.keys() == VERBS


def test_continuous_integration_runs_make_test() -> None:
    script = ROOT / ".ci/run"

    assert os.access(script, os.X_OK)
    assert script.read_text(encoding="utf-8").splitlines()[-1] == "exec make test"


def test_the_top_changelog_entry_is_about_this_version() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert re.fullmatch(rf"\[{re.escape(__version__)}\] - (?:Unreleased|\d{{4}}-\d\d-\d\d)", headings[0])


def test_the_installed_distribution_has_this_version() -> None:
    assert distribution("amplifier").version == __version__


def test_the_parts_have_the_version_that_is_claimed_and_require_what_the_whole_requires() -> None:
    projects = [_project(file) for file in sorted(ROOT.glob("packages/*/pyproject.toml"))]

    assert [project["name"] for project in projects] == ["amplifier-core", "amplifier-foundation"]
    for project in projects:
        assert project["version"] == distribution(project["name"]).version == ECOSYSTEM_VERSION
        required = set(project["dependencies"]) - {f"amplifier-core=={ECOSYSTEM_VERSION}"}
        assert required <= set(_project(ROOT / "pyproject.toml")["dependencies"])


def _project(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    return found


@pytest.mark.parametrize(
    "file", ["constraints.txt", "benchmarks/peer-requirements.txt", "benchmarks/durable-peer-requirements.txt"]
)
def test_pins_are_a_name_and_a_version_in_order(file: str) -> None:
    names = [line.partition("==")[0].lower() for line in (ROOT / file).read_text(encoding="utf-8").splitlines()]

    assert len(pins(file)) == len(names)
    assert names == sorted(names)


def test_everything_the_project_needs_is_pinned() -> None:
    project = _project(ROOT / "pyproject.toml")
    named = [
        *project["dependencies"],
        *(need for extra in project["optional-dependencies"].values() for need in extra),
    ]
    waiting = [(need, "") for need in named]
    needed = set[tuple[str, str]]()
    while waiting:
        text, extra = waiting.pop()
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name == project["name"] or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
            continue
        for wanted in {(name, extra) for extra in ("", *requirement.extras)} - needed:
            needed.add(wanted)
            waiting += [(need, wanted[1]) for need in distribution(name).requires or []]

    assert {name for name, _ in needed} - pins("constraints.txt").keys() == set()


def test_helpers_of_tests_are_found_through_the_configuration_of_pytest() -> None:
    """`pythonpath` names their folders, and no test adds to the path where it lies itself."""
    folders = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["pythonpath"]
    adding = re.compile(r"^ *sys\.path[^\n{]*__file__", re.MULTILINE)
    tests = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "tests").rglob("conftest.py")]

    assert [name for name in folders if not (ROOT / name).is_dir()] == []
    assert [str(test.relative_to(ROOT)) for test in tests if adding.search(test.read_text(encoding="utf-8"))] == []


def test_no_file_speaks_of_a_registry_or_of_a_machine() -> None:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    files = [ROOT / name for name in listing.stdout.split("\0") if name]

    found = [
        f"{path.relative_to(ROOT)}:{number}: {what}: {line.strip()}"
        for path in files
        if path.is_file()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        for what, pattern in MACHINE.items()
        if pattern.search(line)
    ]

    assert files
    assert found == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a package registry", "index-url = https://" + "pypi" + ".org/simple"),
        ("a package registry", "https://files." + "pythonhosted" + ".org/packages/x.whl"),
        ("a home directory", "cache = '/" + "home/ada/.cache'"),
        ("a home directory", "source: file:///" + "Users/ada/module"),
        ("a home directory", "see /" + "root/notes"),
        ("this checkout", f"open {ROOT}/src/amplifier_core"),
    ],
)
def test_a_line_that_speaks_of_them_is_found(what: str, line: str) -> None:
    assert MACHINE[what].search(line)
