"""What a sync has compiled: the profiles that changed, and those that inherit from them."""

import dataclasses
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amplifierd import Home, ProfileId
from amplifierd.exceptions import ProfileCompilationError, ProfileValidationError
from amplifierd.issues import Issue
from amplifierd.profiles.builds.publication import make_staging, publish


class Compiler:
    """Publishes a build with nothing in it but the profile, notes for whom, and fails where it is told to."""

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.forced: list[bool] = []
        self.failures: dict[str, Exception] = {}
        self.home: Home | None = None

    async def compile(self, profile_id: ProfileId, *, force: bool = False, refresh: bool = False) -> Any:
        assert self.home is not None
        self.compiled.append(str(profile_id))
        self.forced.append(force)
        if failure := self.failures.get(str(profile_id)):
            raise failure
        paths = self.home.paths
        staging = make_staging(paths, profile_id)
        (staging / "profile.md").write_text(paths.profile_file(profile_id).read_text())
        (staging / "profile.lock").write_text("{}")
        publish(paths, profile_id, staging, f"{len(self.compiled):064}")
        return SimpleNamespace(profile_id=profile_id, status="fresh", warnings=())

    def taken(self) -> list[str]:
        """Return what was compiled since the last call."""
        taken, self.compiled = self.compiled, []
        return sorted(taken)


@dataclasses.dataclass(frozen=True)
class CompilingHome(Home):
    """A home that compiles with the compiler it is given."""

    compiler: Any = None

    @cached_property
    def profiles(self) -> Any:
        return self.compiler


@pytest.fixture
def compiler() -> Compiler:
    return Compiler()


@pytest.fixture
def home(new_home: Callable[..., Home], compiler: Compiler) -> Home:
    plain = new_home(overrides={})
    compiler.home = CompilingHome(
        **{field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)}, compiler=compiler
    )
    return compiler.home


async def test_adding_compiles_every_profile(
    home: Home, compiler: Compiler, repository: Any, text: Callable[..., str]
) -> None:
    repository.commit({"profiles/other.md": text("other")})

    result = await home.collections.add("team", f"{repository.source}@main")

    assert compiler.taken() == ["team/base", "team/other"]
    assert result.warning is None


async def test_profiles_that_fail_are_a_warning_and_the_collection_is_registered(
    home: Home, compiler: Compiler, repository: Any, text: Callable[..., str]
) -> None:
    repository.commit({"profiles/other.md": text("other")})
    compiler.failures["team/other"] = ProfileCompilationError("no package in it", code="module-package-missing")

    result = await home.collections.add("team", f"{repository.source}@main")

    assert (result.success, result.profile_count, result.warning) == (True, 2, "team/other: no package in it")
    assert home.collections.has_profile("team/other")


async def test_adding_without_compiling_leaves_profiles_uncompiled(
    home: Home, compiler: Compiler, repository: Any
) -> None:
    await home.collections.add("team", f"{repository.source}@main", compile=False)

    assert compiler.taken() == []


async def test_a_sync_compiles_what_changed_and_every_descendant_in_any_collection(
    home: Home, compiler: Compiler, new_repository: Any, text: Callable[..., str]
) -> None:
    parents = new_repository("parents", {"root.md": text("root"), "alone.md": text("alone")})
    children = new_repository(
        "children",
        {
            "child.md": text("child", extends="parents/root"),
            "grandchild.md": text("grandchild", extends="child"),
            "cousin.md": text("cousin", extends="parents:profiles/root.md"),
            "stranger.md": text("stranger"),
        },
    )
    own = home.paths.profile_file("local/mine")
    own.parent.mkdir(parents=True)
    own.write_text(text("mine", extends="root"))
    await home.collections.add("parents", f"{parents.source}@main")
    await home.collections.add("children", f"{children.source}@main")
    await home.collections.sync()
    compiler.taken()
    parents.commit({"root.md": text("root", body="Moved.")})

    results = await home.collections.sync()

    assert compiler.taken() == [
        "children/child",
        "children/cousin",
        "children/grandchild",
        "local/mine",
        "parents/root",
    ]
    assert dict(results["parents"].profiles) == {"alone": "unchanged", "root": "compiled"}
    assert dict(results["children"].profiles) == {
        **{"child": "compiled", "cousin": "compiled", "grandchild": "compiled", "stranger": "unchanged"}
    }


async def test_a_parent_that_vanished_has_its_descendants_compiled_too(
    home: Home, compiler: Compiler, repository: Any, text: Callable[..., str]
) -> None:
    repository.commit({"profiles/child.md": text("child", extends="base")})
    await home.collections.add("team", f"{repository.source}@main")
    compiler.taken()
    repository.commit({"profiles/base.md": None})
    compiler.failures["team/child"] = ProfileValidationError(
        "not valid", [Issue("extends-not-found", "Profile 'base' not found (extended by 'team/child')")]
    )

    result = (await home.collections.sync(["team"]))["team"]

    assert compiler.taken() == ["team/child"]
    assert dict(result.profiles) == {"base": "removed", "child": "error"}
    assert [issue.location for issue in result.errors] == ["child"]


async def test_nothing_changed_compiles_nothing(
    home: Home, compiler: Compiler, repository: Any, snapshot: Callable[[], object]
) -> None:
    await home.collections.add("team", f"{repository.source}@main")
    await home.collections.sync()
    compiler.taken()
    before = snapshot()

    result = (await home.collections.sync())["team"]

    assert (result.status, dict(result.profiles), compiler.taken()) == ("unchanged", {"base": "unchanged"}, [])
    assert snapshot() == before


async def test_a_profile_that_uses_files_of_its_collection_is_compiled_when_the_collection_moved(
    home: Home, compiler: Compiler, repository: Any, text: Callable[..., str]
) -> None:
    repository.commit(
        {
            "profiles/near.md": text("near", extra="agents:\n  helper: ../agents/helper.md"),
            "profiles/all.md": text("all", extra="agents: all"),
            "agents/helper.md": "You help.\n",
        }
    )
    await home.collections.add("team", f"{repository.source}@main")
    compiler.taken()
    repository.commit({"agents/helper.md": "You help more.\n"})

    await home.collections.sync(["team"])

    assert compiler.taken() == ["team/all", "team/near"]


async def test_what_could_not_be_compiled_is_tried_again_by_the_next_sync(
    home: Home, compiler: Compiler, repository: Any
) -> None:
    compiler.failures["team/base"] = OSError("the disk is full")
    first = await home.collections.add("team", f"{repository.source}@main")
    compiler.failures.clear()

    result = (await home.collections.sync(["team"]))["team"]

    assert first.warning == "team/base: the disk is full"
    assert (result.status, dict(result.profiles)) == ("unchanged", {"base": "compiled"})


async def test_a_parent_that_is_meant_to_be_incomplete_is_no_failure(
    home: Home, compiler: Compiler, repository: Any, text: Callable[..., str]
) -> None:
    incomplete = '---\nprofile: {name: parent, version: "1", schema_version: 2}\n---\n'
    repository.commit({"profiles/parent.md": incomplete, "profiles/base.md": text("base", extends="parent")})
    problem = Issue("orchestrator-missing", "Schema v2 profile missing required session.orchestrator")
    compiler.failures["team/parent"] = ProfileValidationError("not valid", [problem])

    result = await home.collections.add("team", f"{repository.source}@main")

    assert result.warning is None


async def test_force_compiles_everything_that_is_synced(home: Home, compiler: Compiler, repository: Any) -> None:
    await home.collections.add("team", f"{repository.source}@main")
    compiler.taken()

    result = (await home.collections.sync(["team"], force_compile=True))["team"]

    assert (compiler.taken(), compiler.forced[-1]) == (["team/base"], True)
    assert dict(result.profiles) == {"base": "compiled"}


async def test_the_text_of_a_compiled_profile_is_replaced_beside_its_build(
    home: Home, compiler: Compiler, repository: Any, text: Callable[..., str]
) -> None:
    await home.collections.add("team", f"{repository.source}@main")
    build = home.paths.profile_dir("team/base").resolve()
    repository.commit({"profiles/base.md": text("base", body="Moved.")})

    await home.collections.sync(["team"], compile=False)

    assert (build / "profile.md").read_text() == text("base")
    assert "Moved." in home.paths.profile_file("team/base").read_text()
    await home.collections.remove("team")
    assert not (home.paths.profiles / "team").exists()


async def test_the_setting_auto_compile_decides_when_nobody_says(
    new_home: Callable[..., Home], repository: Any, register: Callable[[str], None], tmp_path: Path
) -> None:
    home = new_home(overrides={"startup": {"auto_compile": False}})
    register(f"collections:\n  team: {repository.source}@main\n")

    assert dict((await home.collections.sync())["team"].profiles) == {"base": "extracted"}
