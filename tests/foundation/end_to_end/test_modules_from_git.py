"""Every module folder of this repository can be named by `git+…#subdirectory=modules/<id>`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODULES = sorted(path.parent.name for path in (ROOT / "modules").glob("*/pyproject.toml"))

MOUNT_ALL = """
import asyncio, json, sys
from pathlib import Path
from amplifier_foundation import Bundle

async def mount(repository, home, module_id):
    def entry(module_id):
        return {"module": module_id, "source": f"{repository}@main#subdirectory=modules/{module_id}"}

    session = {"orchestrator": entry("loop-basic"), "context": entry("context-simple")}
    kind = module_id.partition("-")[0]
    if role := {"loop": "orchestrator", "context": "context"}.get(kind):
        bundle = Bundle(module_id, session={**session, role: entry(module_id)})
    else:
        section = {"provider": "providers", "tool": "tools", "hook": "hooks", "hooks": "hooks"}[kind]
        bundle = Bundle(module_id, session=session, **{section: [entry(module_id)]})
    prepared = await bundle.prepare(strict=True, cache_dir=Path(home) / "cache")
    async with prepared.create_session(session_cwd=Path(home)) as session:
        module = sys.modules["amplifier_module_" + module_id.replace("-", "_")]
        return {"failures": [str(failure) for failure in session.status.load_failures], "file": module.__file__}

async def main(repository, home, *module_ids):
    print(json.dumps({module_id: await mount(repository, home, module_id) for module_id in module_ids}))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def clone(tmp_path: Path) -> str:
    """A repository with the working tree's modules as its one commit."""
    path = tmp_path / "clone"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "modules", path / "modules", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", path)
    who = ["-c", "user.name=A Tester", "-c", "user.email=tester@example.invalid"]
    for command in (["init", "--quiet", "-b", "main"], ["add", "--all"], ["commit", "--quiet", "-m", "All"]):
        subprocess.run(["git", *who, *command], cwd=path, check=True)
    return f"git+{path.as_uri()}"


def test_every_module_folder_mounts_from_a_clone_of_the_repository(clone: str, home: Path) -> None:
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "ANTHROPIC_API_KEY": "none", "OPENAI_API_KEY": "none"}

    done = subprocess.run(
        [sys.executable, "-c", MOUNT_ALL, clone, str(home), *MODULES], capture_output=True, text=True, env=environment
    )

    assert done.returncode == 0, done.stderr
    mounted = json.loads(done.stdout)
    assert list(mounted) == MODULES
    assert {module_id: answer["failures"] for module_id, answer in mounted.items() if answer["failures"]} == {}
    trees = {Path(answer["file"]).relative_to(home / "cache" / "git").parts[0] for answer in mounted.values()}
    assert len(trees) == 1
