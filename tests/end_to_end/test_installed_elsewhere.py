"""The wheel in an environment of its own, as pipx and uv install it: with what it declares to need, and no checkout."""

import json
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest
from package_index import write_wheel
from shared_packages import link, needed_by

from amplifier_core import __version__
from amplifier_core._version import ECOSYSTEM_VERSION

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Installed:
    """An installed command, with a home and a project of its own."""

    environment: Path
    home: Path
    project: Path

    def __call__(self, *arguments: str) -> str:
        return self.run(str(self.environment / "bin/amplifier"), *arguments)

    def run(self, *command: str) -> str:
        variables = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "NO_COLOR": "1"}
        run = subprocess.run(
            command, cwd=self.project, env=variables, capture_output=True, text=True, check=False, timeout=120
        )
        assert (run.returncode, run.stderr) == (0, ""), run.stderr
        return run.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("elsewhere")
    environment = folder / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    build = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    run = subprocess.run([sys.executable, "-c", build], cwd=ROOT, capture_output=True, text=True, check=True)
    wheel = folder / run.stdout.split()[-1]
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin/python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], capture_output=True, text=True, check=True)
    (site,) = (environment / "lib").glob("python*/site-packages")
    for needed in needed_by("amplifier"):
        link(needed, site)
    for name in ("home", "project"):
        (folder / name).mkdir()
    (folder / "project/notes.md").write_text("- buy milk\n")
    return Installed(environment, folder / "home", folder / "project")


def test_it_runs_from_the_wheel_alone(installed: Installed) -> None:
    script = "import amplifier_cli, amplifierd; print(amplifier_cli.__file__); print(amplifierd.__file__)"

    places = installed.run(str(installed.environment / "bin/python"), "-c", script).splitlines()

    assert all(Path(place).is_relative_to(installed.environment) for place in places)
    assert __version__ in installed("version")


def test_the_shipped_collection_is_there(installed: Installed) -> None:
    listed = {each["profile_id"]: each for each in json.loads(installed("profile", "list", "--json"))}

    shipped = {f"foundation/{file.stem}" for file in (ROOT / "registry/profiles").glob("*.md")}
    assert set(listed) == shipped
    assert all(each["valid"] for each in listed.values())


def test_it_answers_with_the_shipped_modules(installed: Installed) -> None:
    answer = json.loads(installed("run", "--output", "json", "--profile", "foundation/offline", "read notes.md"))

    assert answer["status"] == "completed"
    assert "buy milk" in answer["response"]
    assert json.loads(installed("session", "list", "--json"))


def test_the_page_is_there_and_its_texts_can_be_rendered(installed: Installed) -> None:
    script = """
from importlib.resources import files
from amplifier_rendering.markdown import render
found = [str(file.relative_to(files("amplifierd.page"))) for file in files("amplifierd.page").rglob("*.*")]
print("\\n".join([render("*a*").strip(), *found]))
"""

    html, *shipped = installed.run(str(installed.environment / "bin/python"), "-c", script).splitlines()

    here = ROOT / "src/amplifierd/page"
    wanted = {str(file.relative_to(here)) for kind in ("html", "css", "js", "svg") for file in here.rglob(f"*.{kind}")}
    assert html == '<p dir="auto"><em>a</em></p>'
    assert "index.html" in wanted
    assert wanted <= set(shipped)


def test_what_depends_on_the_names_of_our_parts_installs_beside_them(installed: Installed, tmp_path: Path) -> None:
    code = "import amplifier_core, amplifier_foundation.registry\n"
    write_wheel(tmp_path, "small_app", "1.0", ["amplifier-core>=2,==2.0.2", "amplifier-foundation"], code)
    write_wheel(tmp_path, "small_module", "1.0", ["amplifier-core~=2.0", "amplifier-foundation>=1"], code)
    write_wheel(tmp_path, "amplifier_core", "2.1.0", code="raise SystemError('another kernel')\n")
    python = str(installed.environment / "bin/python")
    uv = [sys.executable, "-m", "uv", "pip", "--no-config"]

    source = ["--python", python, "--no-index", "--find-links", str(tmp_path)]
    subprocess.run([*uv, "install", *source, "small_app", "small_module"], capture_output=True, check=True)

    said = "import small_app, small_module; from importlib.metadata import version as v"
    said += "; print(v('amplifier-core'), v('amplifier-foundation'))"
    assert installed.run(python, "-c", said) == f"{ECOSYSTEM_VERSION} {ECOSYSTEM_VERSION}\n"
    checked = subprocess.run([*uv, "check", "--python", python], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
