"""An index and environments for installs, and what the reference kernel does otherwise, with the decision for it."""

import os
import shutil
import subprocess
import venv
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from installed_environments import IMPORTS, Environment, Index, served
from package_index import write_wheel
from shared_packages import link, needed_by, write_wheel_of

ROOT = Path(__file__).parents[2]
BUILDING = ("hatchling", "editables", "pip")


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    index = Index(tmp_path_factory.mktemp("index"))
    for needed in {each.metadata["Name"]: each for each in needed_by("amplifier", *BUILDING)}.values():
        write_wheel_of(needed, index.directory)
    for name in BUILDING:
        write_wheel_of(distribution(name), index.directory)
    for version in ("2.0.2", "2.1.0"):
        for name in ("amplifier_core", "amplifier_foundation"):
            files = {f"{name}/__init__.py": f"REFERENCE = {version!r}\n".encode(), f"{name}/session.py": b""}
            write_wheel(index.directory, name, version, more=files)
    app = ["amplifier-core>=2", "amplifier-foundation"]
    write_wheel(index.directory, "small_app", "1.0", app, IMPORTS)
    write_wheel(index.directory, "small_module", "1.0", app, IMPORTS)
    write_wheel(index.directory, "kernel_app", "1.0", ["amplifier-core>=2,<3"], "import amplifier_core\n")
    write_wheel(index.directory, "eager_app", "1.0", ["amplifier-core>=2.1"], "import amplifier_core\n")
    with served(index):
        yield index


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with what is in this one, committed or not."""
    checkout = tmp_path_factory.mktemp("checkout") / "amplifier"
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, listed):
        if "/" not in name or name.startswith(("src/", "modules/", "packages/", "registry/")):
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(ROOT / name):
                shutil.copy2(ROOT / name, checkout / name, follow_symlinks=False)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "state"]):
        subprocess.run([*git, *arguments], cwd=checkout, check=True, capture_output=True)
    return checkout


@pytest.fixture(params=["pip", "uv"])
def environment(request: pytest.FixtureRequest, tmp_path: Path, index: Index) -> Environment:
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    for needed in needed_by("amplifier"):
        link(needed, site)
    (folder / "home").mkdir()
    return Environment(folder, index, request.param)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    differences = [found for report in reports if report.when == "call" for found in report.user_properties]
    if differences:
        terminalreporter.section(f"{len(differences)} differences from the reference kernel, and why")
        for test, decision in differences:
            terminalreporter.write_line(f"{test}\n    {decision}")
