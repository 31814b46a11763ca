"""Collections and real builds: compiled on demand, and compiled anew when a sync finds something newer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifierd import Home

MODULE = "async def mount(coordinator, config=None):\n    pass\n"


def module_files(module_id: str, text: str) -> dict[str, str]:
    package = f"amplifier_module_{module_id.replace('-', '_')}"
    return {f"{module_id}/{package}/__init__.py": text}


def build_of(home: Home, profile_id: str) -> Path:
    return home.paths.profile_dir(profile_id).resolve()


@pytest.fixture
def home(new_home: Callable[..., Home]) -> Home:
    return new_home(overrides={"compile": {"install_dependencies": "never"}})


async def test_only_profiles_that_use_a_moved_branch_are_compiled_anew(
    home: Home, new_repository: Any, text: Callable[..., str], git_calls: Callable[[], list[str]]
) -> None:
    moving = new_repository("moving", module_files("tool-a", MODULE))
    still = new_repository("still", module_files("tool-b", MODULE))
    using = "tools:\n- {{module: {0}, source: '{1}@main#subdirectory={0}'}}"
    team = new_repository(
        "team",
        {
            "moving.md": text("moving", extra=using.format("tool-a", moving.source)),
            "still.md": text("still", extra=using.format("tool-b", still.source)),
        },
    )
    added = await home.collections.add("team", f"{team.source}@main")
    before = {name: build_of(home, f"team/{name}") for name in ("moving", "still")}
    moving.commit(module_files("tool-a", MODULE + "# newer\n"))

    unasked = (await home.collections.sync(["team"], refresh=False))["team"]
    calls = len(git_calls())
    result = (await home.collections.sync(["team"]))["team"]
    asked = git_calls()[calls:]
    again = (await home.collections.sync(["team"]))["team"]

    module = "tools/tool-a/amplifier_module_tool_a/__init__.py"
    assert added.warning is None
    assert dict(unasked.profiles) == {"moving": "unchanged", "still": "unchanged"}
    assert dict(result.profiles) == {"moving": "compiled", "still": "unchanged"}
    assert "# newer" in (build_of(home, "team/moving") / module).read_text()
    assert build_of(home, "team/still") == before["still"]
    assert len([call for call in asked if "fetch --progress" in call]) == 1
    assert dict(again.profiles) == {"moving": "unchanged", "still": "unchanged"}
    assert [call for call in git_calls()[calls + len(asked) :] if "ls-remote" not in call] == []


async def test_the_users_own_profiles_are_asked_for_too(
    home: Home, new_repository: Any, text: Callable[..., str]
) -> None:
    tools = new_repository("tools", module_files("tool-a", MODULE))
    file = home.paths.profile_file("local/mine")
    file.parent.mkdir(parents=True)
    extra = f"tools:\n- {{module: tool-a, source: '{tools.source}@main#subdirectory=tool-a'}}"
    file.write_text(text("mine", extra=extra))
    before = (await home.profiles.compile("local/mine")).path
    tools.commit(module_files("tool-a", MODULE + "# newer\n"))

    await home.collections.sync()

    assert build_of(home, "local/mine") != before
    assert home.paths.profile_file("local/mine").read_text() == text("mine", extra=extra)


async def test_a_home_with_nothing_but_a_registry_compiles_a_profile_on_demand(
    home: Home, repository: Any, register: Callable[[str], None]
) -> None:
    register(f"collections:\n  team: {repository.source}@main\n")

    build = await home.profiles.compile("team/base")

    assert (str(build.profile_id), build.status) == ("team/base", "fresh")
    assert home.collections.get("team").profiles[0].status == "fresh"
    result = (await home.collections.sync(["team"]))["team"]
    assert (result.status, dict(result.profiles)) == ("unchanged", {"base": "unchanged"})
    assert build_of(home, "team/base") == build.path


async def test_a_remote_that_gives_no_answer_leaves_builds_as_they_are(
    home: Home, new_repository: Any, text: Callable[..., str]
) -> None:
    tools = new_repository("tools", module_files("tool-a", MODULE))
    source = f"{tools.source}@main#subdirectory=tool-a"
    team = new_repository("team", {"base.md": text("base", extra=f"tools:\n- {{module: tool-a, source: '{source}'}}")})
    await home.collections.add("team", f"{team.source}@main")
    before = build_of(home, "team/base")
    tools.path.rename(tools.path.with_name("away"))

    result = (await home.collections.sync(["team"]))["team"]

    assert (result.status, dict(result.profiles), result.errors) == ("unchanged", {"base": "unchanged"}, ())
    assert build_of(home, "team/base") == before
