"""What the pages state in tables and sentences is what the code has."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import warm_python

import amplifierd
from amplifier_core import testing
from amplifier_core.events import ALL_EVENTS
from amplifier_core.loader import MODULE_FAILURE_REASONS
from amplifier_core.validation import behavioral, structural
from amplifier_kit.providers.stream import STREAM_EVENTS

ROOT = Path(__file__).parents[2]

EVENT = re.compile(r"`([a-z_]+:[a-z_]+)`")

NOT_FOR_USERS = {
    *("AMPLIFIER_GIT_USERNAME", "AMPLIFIER_GIT_PASSWORD"),  # handed to git
    *("AMPLIFIER_CLUSTER_TOKEN", "AMPLIFIER_TABS"),  # of the example of a deployment, of the tests
}

Open = Callable[[str], Any]


def _table(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    below = text.partition(f"\n{heading}\n")[2]
    lines = re.search(r"(?:^\|.*\|\n)+", below, re.MULTILINE)
    assert lines is not None, heading
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[0].splitlines()[2:]]


def test_the_kernel_page_lists_every_event_once(page: Open) -> None:
    listed = [event for row in _table(page("docs/kernel.md").text, "## Every event") for event in EVENT.findall(row[0])]

    assert sorted(listed) == sorted([*ALL_EVENTS, "session:config"])


def test_the_kernels_own_events_come_first(page: Open) -> None:
    rows = _table(page("docs/kernel.md").text, "## Every event")

    assert [row[1].startswith("kernel") for row in rows] == [True] * 8 + [False] * (len(rows) - 8)


def test_the_kernel_example_traces_the_events_in_the_order_of_the_kernel_page(page: Open) -> None:
    (printed,) = [block.text for block in page("docs/kernel.md").blocks if block.language == "output"]
    initialized, *first_turn = printed.partition("It has 8 words.")[0].split()
    command = [sys.executable, str(ROOT / "examples/hello_kernel.py")]
    example = warm_python.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    traced = re.findall(r"^ +\d+  (\S+:\S+)", example.stdout, re.MULTILINE)

    assert initialized == "initialized"
    assert traced == [*first_turn, "session:end"]


@pytest.mark.parametrize("name", ["docs/kernel.md", "docs/contracts/orchestrator.md", "docs/contracts/hook.md"])
def test_an_event_that_a_page_names_exists(page: Open, name: str) -> None:
    assert set(EVENT.findall(page(name).prose)) <= {*ALL_EVENTS, "session:config", "mentions:resolved", *STREAM_EVENTS}


def test_the_plan_page_explains_every_reason_code(page: Open) -> None:
    explained = page("docs/mount-plans.md").text.partition("The reason codes are ")[2]

    assert set(re.findall(r"`([a-z_]+)` \(", explained)) == MODULE_FAILURE_REASONS


def test_the_testing_page_names_everything_in_the_test_kit(page: Open) -> None:
    rows = _table(page("docs/testing-modules.md").text, "## The test kit")

    assert set(re.findall(r"`(\w+)", " ".join(row[0] for row in rows))) == set(testing.__all__)


def test_the_testing_page_names_every_base_class(page: Open) -> None:
    text = page("docs/testing-modules.md").text
    named = set(re.findall(r"`(\w+(?:Structural|Behavior)Tests)`", text))

    shipped = {name for package in (structural, behavioral) for name in package.__all__ if name.endswith("Tests")}
    assert named == shipped


async def test_the_first_profile_of_the_readme_compiles_without_a_warning(page: Open, tmp_path: Path) -> None:
    text = next(block.text for block in page("README.md").blocks if block.language == "markdown")
    home = amplifierd.open_home(tmp_path / "home", offline=True)
    file = home.paths.own_profiles / "reviewer.md"
    file.parent.mkdir(parents=True)
    file.write_text(text)

    build = await home.profiles.compile("local/reviewer")

    assert (build.status, build.lock.data["warnings"]) == ("fresh", [])


def test_the_tool_of_the_readme_takes_ten_lines(page: Open) -> None:
    (tool,) = [block for block in page("README.md").blocks if (block.file or "").startswith("~/tool-days/")]

    assert len([line for line in tool.text.splitlines() if line.strip()]) == 10


def test_the_recording_of_the_readme_shows_what_make_run_shows() -> None:
    program = [sys.executable, str(ROOT / "scripts/record_terminal.py"), "--check"]
    run = subprocess.run(program, env=_without_make(), capture_output=True, text=True, check=False)

    assert (run.returncode, run.stderr) == (0, "")


def test_the_layer_picture_shows_every_package_and_only_arrows_that_the_contracts_allow(page: Open) -> None:
    picture = next(block.text for block in page("docs/concepts.md").blocks if block.language == "mermaid")
    boxes = dict(re.findall(r"(\w+)\[\"<b>([\w*]+)</b>", picture))
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(table["layers"] for table in contracts["contracts"] if "amplifierd" in table.get("layers", []))
    height = {name.strip(): -number for number, layer in enumerate(layers) for name in layer.split("|")}

    assert set(boxes.values()) == set(contracts["root_packages"])
    for above, below in re.findall(r"(\w+) --> (\w+)", picture):
        assert height[boxes[above]] > height[boxes[below]], (above, below)


def test_every_page_is_in_the_index(page: Open) -> None:
    index = page("docs/README.md").text
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} - {"README.md"}

    assert {target for target in re.findall(r"\]\(([^)]+)\)", index) if not target.startswith("..")} == pages


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "examples/README.md"])
def test_every_verb_that_a_page_gives_to_make_exists(page: Open, name: str) -> None:
    run = subprocess.run(["make", "help"], cwd=ROOT, env=_without_make(), capture_output=True, text=True, check=True)
    verbs = {line.split()[0] for line in run.stdout.splitlines()}

    named = set(re.findall(r"(?:`|\$ |^|&& )make (\w+)", page(name).text, re.MULTILINE))

    assert named
    assert named <= verbs


def test_make_run_runs_the_example() -> None:
    command = ["make", "--dry-run", "run"]
    run = subprocess.run(command, cwd=ROOT, env=_without_make(), capture_output=True, text=True, check=True)

    assert run.stdout.splitlines()[-1] == ".venv/bin/python examples/first_run.py"


def _without_make() -> dict[str, str]:
    """Return the environment of a shell that was not started by make."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}


def test_the_container_file_is_the_one_that_the_page_shows(page: Open) -> None:
    shown = [block.text for block in page("docs/daemon.md").blocks if block.text.startswith("FROM ")]

    assert [(ROOT / "Containerfile").read_text().partition("\n")[2]] == shown


def test_a_variable_that_the_code_or_a_page_names_is_in_a_table_of_settings(page: Open) -> None:
    name = re.compile(r"(?<![A-Z_{])AMPLIFIERD?_[A-Z][A-Z_]*[A-Z]\b")
    tables = [page(path).text for path in ("docs/settings.md", "docs/command.md")]
    listed = {
        found for table in tables for row in re.findall(r"^\|.*\|$", table, re.MULTILINE) for found in name.findall(row)
    }
    pages = {path: path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))}
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")}

    not_listed = {
        f"{path.relative_to(ROOT)}: {found}"
        for path, text in (pages | sources).items()
        for found in set(name.findall(text)) - listed - NOT_FOR_USERS
    }

    assert not_listed == set()
