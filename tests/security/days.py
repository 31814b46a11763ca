"""Ordinary days with the shipped profiles: what a model does, and how often a person may be asked at most."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from lab import Lab
from vocabulary import Promise, Step, bash, call, fetch, led, put, read, write


@dataclass(frozen=True)
class Day:
    """One day: the person answers each question as `answers` says, and work is done as `promises` say."""

    name: str
    most: int
    steps: Sequence[Step]
    promises: Mapping[str, Promise]
    prepare: Callable[[Lab], None] = lambda lab: None
    needs: str = ""
    """A program that has to be there."""


def edit(path: str, old: str, new: str) -> dict[str, object]:
    return call("edit_file", file_path=path, old_string=old, new_string=new)


def _told(text: str) -> dict[str, Promise]:
    return {f"the model is told {text!r}": lambda seen: text in seen.told}


def _has(name: str, text: str) -> dict[str, Promise]:
    return {f"{name} has {text!r}": lambda seen: text in seen.file(f"project/{name}")}


_WITHOUT_PLUGINS = " ".join(f"-p no:{plugin.name}" for plugin in entry_points(group="pytest11"))
_CODE = {
    "project/calc.py": "def add(a, b):\n    return a - b\n",
    "project/tests/test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    "project/pyproject.toml": f"[tool.pytest.ini_options]\npythonpath = ['.']\naddopts = '{_WITHOUT_PLUGINS}'\n",
}
_FIX = edit("calc.py", "a - b", "sum((a, b))")  # of another length, or Python would take its bytecode for current
_READING = [
    call("glob", pattern="**/*.py"),
    read("calc.py"),
    call("grep", pattern="def ", path="."),
    read("tests/test_calc.py"),
    read("docs/guide.md"),
    _FIX,
    edit("notes.md", "buy milk", "buy bread"),
    write("docs/new/plan.md", "# Plan\n"),
    write("src/app.py", "print('hello')\n"),
    edit("src/app.py", "hello", "good day"),
    read("src/app.py"),
]
_EDITED = {**_has("calc.py", "sum((a, b))"), **_has("docs/new/plan.md", "Plan"), **_has("src/app.py", "good day")}

# A build backend in the project itself, so that nothing has to be fetched for it.
_BACKEND = """\
import zipfile


def get_requires_for_build_editable(config_settings=None):
    return []


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    name, about = "calc-1.0-py3-none-any.whl", "calc-1.0.dist-info"
    files = {
        "calc.pth": "HOME/project\\n",
        f"{about}/METADATA": "Metadata-Version: 2.1\\nName: calc\\nVersion: 1.0\\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\\nGenerator: own\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    record = "".join(f"{each},,\\n" for each in [*files, f"{about}/RECORD"])
    with zipfile.ZipFile(f"{wheel_directory}/{name}", "w") as wheel:
        for each, text in {**files, f"{about}/RECORD": record}.items():
            wheel.writestr(each, text)
    return name
"""
_BUILD = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
_PIP = "#!HOME/project/.venv/bin/python\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n"


def _with_code(lab: Lab) -> None:
    put(lab, _CODE)


def _with_repository(lab: Lab) -> None:
    _with_code(lab)
    put(lab, {".gitconfig": "[user]\nname = Ada\nemail = ada@example.org\n", "project/.gitignore": "origin.git\n"})
    origin = lab.project / "origin.git"
    subprocess.run(["git", "init", "-q", "--bare", origin], check=True)
    subprocess.run(["git", "remote", "add", "origin", origin], cwd=lab.project, check=True)


def _with_packages(lab: Lab) -> None:
    put(
        lab,
        {
            "project/package.json": '{"name": "app", "version": "1.0.0", "dependencies": {"left": "file:./left"}}',
            "project/left/package.json": '{"name": "left", "version": "1.0.0", "bin": {"left": "left.js"}}',
            "project/left/left.js": "#!/usr/bin/env node\n",
        },
    )


def _with_environment(lab: Lab) -> None:
    environment = [sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", lab.project / ".venv"]
    subprocess.run(environment, check=True)
    put(lab, {"project/backend.py": _BACKEND, "project/pyproject.toml": _BUILD, "project/.venv/bin/pip": _PIP})
    (lab.project / ".venv/bin/pip").chmod(0o755)
    lab.variables["PATH"] = f"{lab.project}/.venv/bin:/usr/local/bin:/usr/bin:/bin"
    lab.variables["VIRTUAL_ENV"] = str(lab.project / ".venv")


def _with_search(lab: Lab) -> None:
    text = (lab.home / "config/profiles/base.md").read_text().replace("name: base", "name: research", 1)
    config = "{search_engine: searxng, search_url: 'http://search.example/search', max_results: 10}"
    entry = f"tools:\n- module: tool-web\n  config: {config}\n---\n"
    (lab.home / "config/profiles/research.md").write_text(text.removesuffix("---\n") + entry)


PAGES = [f"http://{host}.example/milk/{number}" for number in range(5) for host in ("news", "other")]

DAYS = [
    *(
        Day(f"reading and editing with {profile}", 0, [led(profile, *_READING)], _EDITED, _with_code)
        for profile in ("base", "coding")
    ),
    Day(
        "pytest",
        1,
        [
            led(
                "coding",
                bash("pytest -q"),
                read("calc.py"),
                _FIX,
                bash("pytest -q tests/test_calc.py"),
                bash("pytest -x -k add"),
                answers=["a"],
            )
        ],
        {**_told("1 failed"), **_told("1 passed")},
        _with_code,
        needs="pytest",
    ),
    Day(
        "git",
        5,
        [
            led(
                "coding",
                bash("git status"),
                bash("git checkout -b topic"),
                read("calc.py"),
                _FIX,
                bash("git diff"),
                bash("git add calc.py"),
                bash("git commit -m 'Add numbers'"),
                write("src/app.py", "print(1)\n"),
                bash("git add src/app.py"),
                bash("git commit -m 'Add an application'"),
                bash("git log --oneline -5"),
                bash("git log --stat -2"),
                bash("git push -u origin topic"),
                answers=["a", "a", "a", "a", "y"],
            )
        ],
        {
            **_told("Add an application"),
            **_told("set up to track"),
            "it is pushed": lambda seen: bool(seen.file("project/origin.git/refs/heads/topic")),
        },
        _with_repository,
    ),
    Day(
        "npm install",
        1,
        [led("coding", bash("npm install"), bash("ls node_modules"), answers=["y"])],
        {"it is installed": lambda seen: (seen.lab.project / "node_modules/left").exists()},
        _with_packages,
        needs="npm",
    ),
    Day(
        "pip install -e .",
        1,
        [led("coding", bash("pip install -e ."), answers=["y"])],
        _told("Successfully installed calc"),
        _with_environment,
    ),
    Day(
        "five edits of AGENTS.md",
        1,
        [
            led(
                "base",
                write("AGENTS.md", "Rule 0.\n"),
                *(edit("AGENTS.md", f"Rule {number}", f"Rule {number + 1}") for number in range(4)),
                answers=["y"],
            )
        ],
        _has("AGENTS.md", "Rule 4"),
    ),
    Day(
        "a new conftest",
        0,
        [led("base", write("tests/conftest.py", "import pytest\n"))],
        _has("tests/conftest.py", "pytest"),
    ),
    Day(
        "ten pages of web research",
        1,
        [led("research", call("web_search", query="milk"), *map(fetch, PAGES), answers=["a"])],
        {
            "ten pages are read": lambda seen: (
                {url for url in PAGES if any(f"GET {url}" in each for each in seen.requests)} == set(PAGES)
            )
        },
        _with_search,
    ),
]


def missing(day: Day) -> str:
    """Return the program that a day needs and that is not there for commands, which have a `/tmp` of their own."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    found = shutil.which(day.needs, path=path) if day.needs else ""
    return day.needs if found is None or Path(found).is_relative_to("/tmp") else ""
