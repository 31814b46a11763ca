"""A secret in a profile: its build has a reference, modules get the secret, and nothing in the home gives it away."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from amplifierd import Home

SECRET, OTHER = "hunter-2-hunter", "hunter-3-hunter"
OVERLAID = "hunter-4-overlay"

TOOL = """
import json
from pathlib import Path

class Tool:
    name = description = "told"
    input_schema = {}
    async def execute(self, input):
        return None

async def mount(coordinator, config=None):
    Path(config["working_dir"], "told.json").write_text(json.dumps(config))
    await coordinator.mount("tools", Tool(), name="told")
"""


@pytest.fixture
def told(bench: Any) -> Any:
    """Write a profile with a secret, whose module writes down what it is configured with."""
    source = bench.write_module("tool-told", {"amplifier_module_tool_told/__init__.py": TOOL})

    def write(secret: str) -> None:
        bench.write_profile(
            providers=[{"module": "provider-mock"}],
            tools=[{"module": "tool-told", "source": source, "config": {"password": secret}}],
        )

    return write


def files_with(secret: str, home: Home) -> list[Path]:
    every = (path for path in home.paths.home.rglob("*") if path.is_file() and secret.encode() in path.read_bytes())
    return sorted(path.relative_to(home.paths.home) for path in every)


async def test_a_module_gets_the_secret_and_only_authors_files_have_it(bench: Any, told: Any, tmp_path: Path) -> None:
    home: Home = bench.home
    told(SECRET)
    overlay = home.paths.overlay_file("local/mine")
    overlay.parent.mkdir(parents=True)
    overlay.write_text(f"---\ntools: [{{module: tool-told, config: {{token: {OVERLAID}}}}}]\n---\n")

    async with home.sessions.open("local/mine", working_dir=tmp_path):
        config = json.loads((tmp_path / "told.json").read_text())
    await home.sessions.close()

    assert (config["password"], config["token"]) == (SECRET, OVERLAID)
    store = home.paths.secrets_file.relative_to(home.paths.home)
    assert files_with(SECRET, home) == sorted([Path("config/profiles/mine/profile.md"), store])
    assert files_with(OVERLAID, home) == sorted([overlay.relative_to(home.paths.home), store])


async def test_another_secret_is_another_build_and_no_hash_is_of_the_secret_itself(bench: Any, told: Any) -> None:
    told(SECRET)
    first = await bench.home.profiles.compile("local/mine")
    file = bench.home.paths.own_profiles / "mine/profile.md"
    written = hashlib.sha256(file.read_bytes()).hexdigest()
    assert written not in json.dumps(bench.lock())
    told(OTHER)
    second = await bench.home.profiles.compile("local/mine")
    told(SECRET)
    again = await bench.home.profiles.compile("local/mine")

    assert first.build_id == again.build_id != second.build_id
    assert any(warning.startswith("literal-secret") for warning in again.warnings)
    explained = await bench.home.plans.explain(again, "tools[tool-told].config.password")
    assert explained["value"] == again.plan()["tools"][0]["config"]["password"]


async def test_an_export_says_what_it_does_not_have_and_so_does_the_home_that_imports_it(
    bench: Any, told: Any, tmp_path: Path
) -> None:
    told(SECRET)
    async with bench.home.sessions.open("local/mine", working_dir=tmp_path) as session:
        pass
    exported = await bench.home.sessions.export(session.session_id, tmp_path / "session.export")
    await bench.home.sessions.close()
    there = bench.open_home(tmp_path / "there")
    imported = await there.sessions.import_(exported.path)

    places = ("tools[0].config.password",)
    assert exported.left_out == imported.left_out == places
    assert SECRET.encode() not in exported.path.read_bytes()
    await there.sessions.close()
