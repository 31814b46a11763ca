"""A build is all that is needed to run it: whatever becomes of the texts it was made from, it says the same."""

import json
import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import warm_python

from amplifierd.exceptions import ProfileCompilationError, ProfileValidationError
from amplifierd.profiles.builds.publication import seal

LOOP = """
class Loop:
    async def execute(self, prompt, context, providers, tools, hooks, coordinator=None, **more):
        return f"{prompt} said {', '.join(sorted(tools))} as they were"

async def mount(coordinator, config=None):
    await coordinator.mount("orchestrator", Loop())
"""

ASK = """
import asyncio, json, sys
from amplifier_core import AmplifierSession
from amplifierd import open_home

async def main(path, build_id):
    home = open_home(path, offline=True)
    build = home.profiles.find_build("team/child", build_id)
    plan = await home.plans.generate(build)
    explained = await home.plans.explain(build, "tools[tool-todo].config.size")
    with build.import_path():
        session = AmplifierSession(plan)
        resolver = home.resolver(pins={"team/child": build.path})
        await session.coordinator.mount("module-source-resolver", resolver)
        await session.initialize()
        answer = await session.execute("Hello")
        await session.cleanup()
    origin = {key: explained["origin"][key] for key in ("profile", "line")}
    print(json.dumps([plan, build.instruction(), origin, answer]))

asyncio.run(main(*sys.argv[1:]))
"""


def ask(home: Path, build_id: str) -> Any:
    done = warm_python.run(
        [sys.executable, "-c", ASK, str(home), build_id], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_a_build_gives_the_same_plan_instruction_and_answer_whatever_became_of_its_texts(
    bench: Any, new_repository: Any, tmp_path: Path
) -> None:
    loop = {"module": "loop-own", "source": "./loop-own"}
    parent = {
        "session": {"orchestrator": loop, "context": "context-simple"},
        "providers": [{"module": "provider-mock"}],
    }
    tools = [{"module": "tool-todo", "config": {"size": 3}}]
    files = bench.module_files("loop-own", {"amplifier_module_loop_own/__init__.py": LOOP})
    repository = new_repository(
        "team",
        {
            **{f"loop-own/{name}": content for name, content in files.items()},
            "agents/expert.md": "Knows it.\n",
            "parent.md": bench.profile_text(
                "parent", body="Be exact.", **parent, agents={"expert": "./agents/expert.md"}
            ),
            "child.md": bench.profile_text("child", extends="parent", tools=tools),
        },
    )
    await bench.home.collections.add("team", f"{repository.source}@main")
    overlay = bench.home.paths.overlay_file("team/child")
    overlay.parent.mkdir(parents=True)
    overlay.write_text("---\ntools:\n- module: tool-todo\n  config: {limit: 7}\n---\n")
    build = await bench.home.profiles.compile("team/child")
    before = ask(bench.home.paths.home, build.build_id)

    shutil.rmtree(repository.path)
    overlay.write_text("---\ntools: null\n---\nOther words.\n")
    shutil.rmtree(bench.home.paths.cache / "git")
    parents = bench.home.paths.profile_dir("team/parent")
    (parents / "profile.md").unlink()
    (parents / "profile.md").write_text(bench.profile_text("parent", body="Rewritten.", tools=[{"module": "tool-web"}]))
    moved = bench.home.paths.home.rename(tmp_path / "elsewhere")

    plan, instruction, origin, answer = after = ask(moved, build.build_id)
    assert after == before
    assert plan["tools"][0]["config"] == {"size": 3, "limit": 7}
    assert plan["agents"]["expert"]["content"] == "Knows it.\n"
    assert (instruction, origin["profile"]) == ("Be exact.", "team/child")
    assert answer == "Hello said todo as they were"


async def test_what_a_request_changes_is_laid_over_the_build_and_nothing_else(bench: Any) -> None:
    path = bench.write_profile(tools=[{"module": "tool-todo", "config": {"a": 1}}, {"module": "tool-web"}], body="Hi.")
    build = await bench.home.profiles.compile("local/mine")
    path.write_text("This is no profile any more.\n")
    overrides = {"tools": [{"module": "tool-todo", "config": {"b": 2}}], "exclude": {"tools": ["tool-web"]}}

    plan = await bench.home.plans.generate(build, overrides=overrides)

    assert plan["tools"] == [{"module": "tool-todo", "source": "local/mine", "config": {"a": 1, "b": 2}}]
    assert plan == {**build.plan(), "tools": plan["tools"]}
    explained = await bench.home.plans.explain(build, "tools[tool-todo].config.b", overrides=overrides)
    assert (explained["value"], explained["origin"]["profile"]) == (2, "request")
    assert str(bench.home.plans.diff(build, plan)) == "- tools: tool-web\n~ tools: tool-todo\n    config.b = 2"
    for wrong, told in (
        ({"tools": [{"module": "tool-todo", "source": "/x"}]}, "source cannot be given"),
        ({"session": None}, "missing required session.orchestrator"),
    ):
        with pytest.raises(ProfileValidationError, match=told):
            await bench.home.plans.generate(build, overrides=wrong)


async def test_the_resolved_plan_of_a_build_that_is_not_published_names_its_own_directories(bench: Any) -> None:
    source = bench.write_module("tool-own")
    bench.write_profile(tools=[{"module": "tool-own", "source": source}])
    old = await bench.home.profiles.compile("local/mine")
    with old.hold():
        bench.write_profile(tools=[{"module": "tool-own", "source": source, "config": {"a": 1}}])
        new = await bench.home.profiles.compile("local/mine")
        resolved = await bench.home.plans.generate(old, form="resolved")

        assert resolved["tools"][0]["source"] == (old.path / "tools/tool-own").as_uri()
        assert bench.home.plans.convert(resolved, "portable", build=old) == old.plan()
        published = bench.home.paths.profile_dir("local/mine")
        assert (await bench.home.plans.generate(new, form="resolved"))["tools"][0]["source"] == (
            published / "tools/tool-own"
        ).as_uri()


async def test_the_files_of_a_build_cannot_be_written_and_nobody_elses_modes_change(bench: Any) -> None:
    source = Path(bench.write_module("tool-own", {"amplifier_module_tool_own/run.sh": "#!/bin/sh\n"}))
    script = source / "amplifier_module_tool_own/run.sh"
    script.chmod(0o755)
    bench.write_profile(tools=[{"module": "tool-own", "source": str(source)}])
    first = await bench.home.profiles.compile("local/mine")
    bench.write_profile(tools=[{"module": "tool-own", "source": str(source), "config": {"a": 1}}])
    with first.hold():
        second = await bench.home.profiles.compile("local/mine")

        for build in (first, second):
            files = [path for path in build.path.rglob("*") if path.is_file()]
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in files}
            assert {name for name, mode in modes.items() if mode != 0o444} == {"run.sh", "plan.json", "profile.md"}
            assert modes["plan.json"] == modes["profile.md"] == 0o400, "they may hold what is nobody else's business"
            assert modes["run.sh"] == 0o555
            assert all(path.stat().st_mode & 0o700 == 0o700 for path in build.path.rglob("*") if path.is_dir())
    shared = "tools/tool-own/pyproject.toml"
    assert (first.path / shared).stat().st_ino == (second.path / shared).stat().st_ino
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    shutil.rmtree(bench.home.paths.home)


def test_sealing_leaves_the_other_names_of_a_file_alone(tmp_path: Path) -> None:
    (tmp_path / "cache.py").write_text("x = 1\n")
    (tmp_path / "build").mkdir()
    os.link(tmp_path / "cache.py", tmp_path / "build" / "linked.py")

    seal(tmp_path / "build")

    assert stat.S_IMODE((tmp_path / "cache.py").stat().st_mode) != 0o444
    assert stat.S_IMODE((tmp_path / "build" / "linked.py").stat().st_mode) == 0o444
    assert (tmp_path / "build" / "linked.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("name", ["plan.json", "instruction.md", "origins.json"])
async def test_a_text_of_a_build_that_was_lost_or_changed_is_written_again(bench: Any, name: str) -> None:
    bench.write_profile(body="Words.")
    build = await bench.home.profiles.compile("local/mine")
    content = (build.path / name).read_text()
    (build.path / name).unlink()

    assert [str(reason) for reason in (await bench.home.profiles.status("local/mine")).reasons] == [
        f"resource-missing: {name}"
    ]
    restored = await bench.home.profiles.compile("local/mine", frozen=True)
    assert ((restored.path / name).read_text(), restored.build_id) == (content, build.build_id)

    (restored.path / name).chmod(0o644)
    (restored.path / name).write_text("{}")
    assert (await bench.home.profiles.verify("local/mine")).codes == ("resource-modified",)
    again = await bench.home.profiles.compile("local/mine")
    assert (again.path / name).read_text() == content


async def test_a_build_without_its_plan_says_what_to_do(bench: Any) -> None:
    bench.write_profile()
    build = await bench.home.profiles.compile("local/mine")
    (build.path / "plan.json").unlink()

    with pytest.raises(ProfileCompilationError, match="compile the profile again") as caught:
        await bench.home.plans.generate(build)
    assert caught.value.code == "build-damaged"
