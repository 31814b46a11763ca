"""What a compile makes of a profile: the directory, the lock, and what it refuses."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.sources import hash_content
from amplifierd.exceptions import ProfileCompilationError, ProfileNotFoundError, ProfileValidationError


def files_in(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


@pytest.fixture
def modules(bench: Any, new_repository: Callable[..., Any]) -> Any:
    """A repository with one module of every type, an agent and documents."""
    ids = ("loop-own", "context-own", "provider-own", "tool-own", "hooks-own")
    files = {f"modules/{each}/{name}": text for each in ids for name, text in bench.module_files(each).items()}
    documents = {"experts/code.md": "You review code.\n", "docs/USAGE.md": "Use it.\n", "docs/more/EXTRA.md": "More.\n"}
    return new_repository("modules", files | documents | {"docs/__pycache__/x.pyc": b"\0"})


@pytest.fixture
def full_profile(bench: Any, modules: Any) -> None:
    def entry(module_id: str) -> dict[str, str]:
        return {"module": module_id, "source": f"{modules.source}@main#subdirectory=modules/{module_id}"}

    bench.write_profile(
        session={"orchestrator": entry("loop-own"), "context": entry("context-own")},
        providers=[entry("provider-own")],
        tools=[entry("tool-own")],
        hooks=[entry("hooks-own")],
        agents={"reviewer": f"{modules.source}@main#experts/code.md"},
        context={"manual": f"{modules.source}@main#subdirectory=docs"},
    )


@pytest.mark.usefixtures("full_profile")
async def test_a_build_has_every_resource_in_its_place_and_nothing_else(bench: Any) -> None:
    build = await bench.home.profiles.compile("local/mine")

    published = bench.home.paths.profiles / "local" / "mine"
    assert files_in(published) == [
        "agents/reviewer.md",
        "context/context-own/amplifier_module_context_own/__init__.py",
        "context/context-own/pyproject.toml",
        "contexts/manual/USAGE.md",
        "contexts/manual/more/EXTRA.md",
        "hooks/hooks-own/amplifier_module_hooks_own/__init__.py",
        "hooks/hooks-own/pyproject.toml",
        "instruction.md",
        "orchestrator/loop-own/amplifier_module_loop_own/__init__.py",
        "orchestrator/loop-own/pyproject.toml",
        "origins.json",
        "plan.json",
        "profile.lock",
        "profile.md",
        "providers/provider-own/amplifier_module_provider_own/__init__.py",
        "providers/provider-own/pyproject.toml",
        "tools/tool-own/amplifier_module_tool_own/__init__.py",
        "tools/tool-own/pyproject.toml",
    ]
    assert (build.status, build.warnings, build.path.resolve()) == ("fresh", (), published.resolve())
    assert published.readlink().as_posix() == f".builds/mine/{build.build_id}"


@pytest.mark.usefixtures("full_profile")
async def test_the_lock_tells_what_every_resource_was_made_from(bench: Any, modules: Any) -> None:
    build = await bench.home.profiles.compile("local/mine")

    lock = bench.lock()
    commit = modules.git("rev-parse", "HEAD")
    assert list(lock) == [
        *("generated_at", "profile_hash", "format_version", "build_id", "python", "platform", "chain", "resources"),
        *("degraded", "warnings", "written"),
    ]
    assert (lock["format_version"], lock["chain"], lock["degraded"], lock["warnings"]) == (1, [], [], [])
    assert re.fullmatch(r"[0-9a-f]{64}", lock["profile_hash"])
    assert re.fullmatch(r"[0-9a-f]{64}", lock["build_id"])
    assert lock["generated_at"].endswith("Z")
    resources = lock["resources"]
    assert list(resources) == ["orchestrator", "context", "providers", "tools", "hooks", "agents", "contexts"]
    entries = [resources["orchestrator"], resources["context"], *resources["providers"], *resources["tools"]]
    assert [entry["name"] for entry in entries] == ["loop-own", "context-own", "provider-own", "tool-own"]
    entries += [*resources["hooks"], resources["agents"]["reviewer"], resources["contexts"]["manual"]]
    for entry in entries:
        assert (entry["commit"], entry["kind"], entry["mutable"], entry["status"]) == (commit, "git", True, "ok")
        assert entry["ref"].startswith(f"{modules.source}@main#")
        assert entry["resolved_at"].endswith("Z")
        assert entry["requirements"] == []
        assert entry["content_hash"] == hash_content(build.path / entry["path"])
    assert resources["agents"]["reviewer"]["path"] == "agents/reviewer.md"
    assert "name" not in resources["agents"]["reviewer"]
    text = (build.path / "profile.lock").read_text()
    assert str(bench.home.paths.home) not in text
    assert text.endswith("}\n")
    assert text.startswith('{\n  "generated_at"')


@pytest.mark.usefixtures("bench")
async def test_modules_without_a_source_are_locked_as_installed_and_not_copied(bench: Any) -> None:
    bench.write_profile(tools=[{"module": "tool-todo", "source": "amplifier_module_tool_todo"}])

    build = await bench.home.profiles.compile("local/mine")

    assert files_in(build.path) == ["instruction.md", "origins.json", "plan.json", "profile.lock", "profile.md"]
    loop = bench.lock()["resources"]["orchestrator"]
    assert (loop["name"], loop["ref"], loop["kind"], loop["path"], loop["commit"]) == (
        *("loop-basic", None, "installed", None, None),
    )
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", loop["version"])
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", loop["content_hash"])
    (tool,) = bench.lock()["resources"]["tools"]
    assert (tool["ref"], tool["kind"], tool["path"]) == ("amplifier_module_tool_todo", "installed", None)


async def test_the_same_inputs_make_the_same_build_in_another_home(bench: Any, full_profile: None) -> None:
    first = await bench.home.profiles.compile("local/mine")
    other = bench.tmp_path / "elsewhere" / "home"
    text = (bench.home.paths.profile_file("local/mine")).read_text()
    bench.home = bench.open_home(other)
    bench.write_profile(text=text)

    second = await bench.home.profiles.compile("local/mine")

    assert first.build_id == second.build_id
    assert first.path != second.path


async def test_a_moved_home_goes_on_with_its_builds(bench: Any, full_profile: None) -> None:
    before = await bench.home.profiles.compile("local/mine")
    moved = bench.tmp_path / "moved"
    shutil.move(bench.home.paths.home, moved)

    after = await bench.open_home(moved).profiles.compile("local/mine")

    assert after.build_id == before.build_id
    assert after.path.is_relative_to(moved)


LAYOUTS = {
    "the package is in the source": ("", "amplifier_module_tool_own/__init__.py", ""),
    "the source is the package": ("", "amplifier_module_tool_own/__init__.py", "/amplifier_module_tool_own"),
    "the package is below src": ("", "src/amplifier_module_tool_own/__init__.py", ""),
    "the module is one file": ("", "amplifier_module_tool_own.py", ""),
    "an entry point names the package": (
        '[project.entry-points."amplifier.modules"]\ntool-own = "mine:mount"\n',
        "mine/__init__.py",
        "",
    ),
}


@pytest.mark.parametrize(("project", "file", "path"), LAYOUTS.values(), ids=list(LAYOUTS))
async def test_a_modules_package_is_found_when(bench: Any, project: str, file: str, path: str) -> None:
    folder = bench.tmp_path / "source"
    bench.write_files(folder, {file: "x = 1\n", "amplifier_module_other/__init__.py": "", "README.md": "no\n"})
    if project:
        bench.write_files(folder, {"pyproject.toml": project})
    bench.write_profile(tools=[{"module": "tool-own", "source": f"{folder}{path}"}])

    build = await bench.home.profiles.compile("local/mine")

    copied = file.removeprefix("src/")
    expected = [copied, "pyproject.toml"] if project else [copied]
    assert files_in(build.path / "tools" / "tool-own") == sorted(expected)


async def test_another_modules_package_is_never_taken(bench: Any) -> None:
    folder = bench.tmp_path / "source"
    other = '[project.entry-points."amplifier.modules"]\ntool-other = "amplifier_module_tool_other:mount"\n'
    bench.write_files(folder, {"amplifier_module_tool_other/__init__.py": "", "pyproject.toml": other})
    bench.write_profile(tools=[{"module": "tool-own", "source": str(folder)}])

    with pytest.raises(ProfileCompilationError) as caught:
        await bench.home.profiles.compile("local/mine")

    assert caught.value.code == "module-package-missing"
    assert caught.value.problems == (f"module-package-missing: no package 'amplifier_module_tool_own' in {folder}",)


async def test_every_reference_that_fails_is_told_at_once_and_nothing_is_left(bench: Any, modules: Any) -> None:
    bench.write_profile(
        tools=[
            {"module": "tool-gone", "source": f"{modules.source}@nowhere"},
            {"module": "tool-empty", "source": f"{modules.source}@main#docs"},
            {"module": "tool-nobody-has"},
        ],
        agents={"folder": f"{modules.source}@main#docs", "page": f"{modules.source}@main#docs/gone.md"},
        context={"file": f"{modules.source}@main#docs/USAGE.md"},
    )

    with pytest.raises(ProfileCompilationError) as caught:
        await bench.home.profiles.compile("local/mine")

    told = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 6
    assert "nowhere" in told
    assert "module-package-missing: no package 'amplifier_module_tool_empty'" in told
    assert "module-not-installed: module 'tool-nobody-has'" in told
    assert f"Agent ref must be a markdown file: {modules.source}@main#docs" in told
    assert "docs/gone.md" in told
    assert f"Context ref must be a directory: {modules.source}@main#docs/USAGE.md" in told
    assert files_in(bench.home.paths.profiles) == ["local/mine/profile.md"]


async def test_an_agent_that_is_not_text_is_refused(bench: Any) -> None:
    agent = bench.tmp_path / "binary.md"
    agent.write_bytes(b"\xff\xfe\0")
    bench.write_profile(agents={"noise": str(agent)})

    with pytest.raises(ProfileCompilationError, match="Agent ref must be a markdown file") as caught:
        await bench.home.profiles.compile("local/mine")

    assert caught.value.code == "agent-not-file"


@pytest.mark.parametrize("place", ["package", "context"])
async def test_a_link_out_of_the_source_is_refused(bench: Any, place: str) -> None:
    secret = bench.tmp_path / "secret"
    secret.write_text("no\n")
    folder = bench.tmp_path / "source"
    bench.write_files(folder, {"amplifier_module_tool_own/__init__.py": "", "docs/a.md": ""})
    target = "amplifier_module_tool_own/link.py" if place == "package" else "docs/link.md"
    (folder / target).symlink_to(secret)
    bench.write_profile(tools=[{"module": "tool-own", "source": str(folder)}], context={"docs": f"{folder}#docs"})

    with pytest.raises(ProfileCompilationError, match="leads out of its source"):
        await bench.home.profiles.compile("local/mine")


async def test_a_link_inside_of_the_source_becomes_the_file_it_leads_to(bench: Any) -> None:
    folder = bench.tmp_path / "source"
    bench.write_files(folder, {"shared/helper.py": "x = 1\n", "amplifier_module_tool_own/__init__.py": ""})
    (folder / "amplifier_module_tool_own/helper.py").symlink_to("../shared/helper.py")
    (folder / "amplifier_module_tool_own/run.sh").write_text("#!/bin/sh\n")
    (folder / "amplifier_module_tool_own/run.sh").chmod(0o755)
    bench.write_profile(tools=[{"module": "tool-own", "source": str(folder)}])

    build = await bench.home.profiles.compile("local/mine")

    package = build.path / "tools/tool-own/amplifier_module_tool_own"
    assert not (package / "helper.py").is_symlink()
    assert (package / "helper.py").read_text() == "x = 1\n"
    assert (package / "run.sh").stat().st_mode & 0o100
    assert bench.lock()["resources"]["tools"][0]["content_hash"] == hash_content(build.path / "tools/tool-own")


async def test_relative_references_of_a_git_collection_are_parts_of_its_commit(
    bench: Any, new_repository: Callable[..., Any]
) -> None:
    text = bench.profile_text(
        "base",
        tools=[{"module": "tool-own", "source": "../modules/tool-own"}],
        agents="all",
        context={"docs": "../docs"},
    )
    files = {f"modules/tool-own/{name}": content for name, content in bench.module_files("tool-own").items()}
    repository = new_repository(
        "team", {"profiles/base.md": text, "agents/one.md": "One.\n", "docs/a.md": "A\n", **files}
    )
    await bench.home.collections.add("team", f"{repository.source}@main")

    build = await bench.home.profiles.compile("team/base")

    resources = bench.lock("team/base")["resources"]
    commit = repository.git("rev-parse", "HEAD")
    assert files_in(build.path / "agents") == ["one.md"]
    found = [resources["tools"][0], resources["agents"]["one"], resources["contexts"]["docs"]]
    assert [(entry["ref"], entry["kind"], entry["commit"]) for entry in found] == [
        ("../modules/tool-own", "git", commit),
        ("./agents/one.md", "git", commit),
        ("../docs", "git", commit),
    ]


async def test_a_relative_reference_must_stay_in_its_collection(bench: Any) -> None:
    bench.write_module("tool-own")
    collection = bench.tmp_path / "team"
    text = bench.profile_text("base", tools=[{"module": "tool-own", "source": "../../modules/tool-own"}])
    bench.write_files(collection, {"profiles/base.md": text})
    await bench.home.collections.add("team", str(collection), compile=False)

    with pytest.raises(ProfileCompilationError, match="leads out of the collection 'team'"):
        await bench.home.profiles.compile("team/base")


async def test_a_local_profile_keeps_its_text_and_the_files_beside_it(bench: Any) -> None:
    text = bench.profile_text("mine", body="My words.", agents={"helper": "./agents/expert.md"})
    path = bench.write_profile(text=text)
    bench.write_files(path.parent, {"agents/expert.md": "Expert.\n", "notes.txt": "keep\n"})

    first = await bench.home.profiles.compile("local/mine")
    path.write_text(text + " And more.")
    (path.parent / "agents/expert.md").write_text("Wiser.\n")
    second = await bench.home.profiles.compile("local/mine")

    assert path.read_text() == text + " And more."
    assert files_in(path.parent) == ["agents/expert.md", "notes.txt", "profile.md"]
    assert (second.path / "agents/helper.md").read_text() == "Wiser.\n"
    assert first.build_id != second.build_id


async def test_a_compile_that_fails_leaves_the_build_before_as_it_was(bench: Any) -> None:
    source = bench.write_module("tool-own")
    bench.write_profile(tools=[{"module": "tool-own", "source": source}])
    before = await bench.home.profiles.compile("local/mine")
    bench.write_profile(tools=[{"module": "tool-own", "source": source}, {"module": "tool-x", "source": "/nowhere"}])

    with pytest.raises(ProfileCompilationError, match="does not exist"):
        await bench.home.profiles.compile("local/mine")

    after = bench.home.profiles.find_build("local/mine")
    assert (after.build_id, after.lock.data) == (before.build_id, before.lock.data)
    assert before.path.is_dir()
    assert not list(before.path.parent.glob(".*"))


async def test_optional_modules_that_cannot_be_had_are_left_out_when_the_setting_says_so(bench: Any) -> None:
    bench.reopen(compile={"keep_going": True})
    bench.write_profile(tools=[{"module": "tool-x", "source": "/nowhere"}, {"module": "tool-todo"}])

    build = await bench.home.profiles.compile("local/mine")

    entry = bench.lock()["resources"]["tools"][0]
    assert (build.status, bench.lock()["degraded"]) == ("degraded", ["tool-x"])
    assert (entry["status"], entry["path"], entry["content_hash"]) == ("missing", None, None)
    assert any(text.startswith("module-missing: tool-x: ") for text in build.warnings)
    assert (await bench.home.profiles.status("local/mine")).status == "degraded"

    bench.write_profile(session={"orchestrator": {"module": "loop-x", "source": "/nowhere"}})
    with pytest.raises(ProfileCompilationError, match="does not exist"):
        await bench.home.profiles.compile("local/mine")


async def test_instances_of_one_provider_share_one_copy(bench: Any) -> None:
    source = bench.write_module("provider-own")
    entries = [{"module": "provider-own", "source": source}, {"module": "provider-own", "instance_id": "second"}]
    bench.write_profile(providers=entries)

    await bench.home.profiles.compile("local/mine")

    assert [entry["name"] for entry in bench.lock()["resources"]["providers"]] == ["provider-own"]
    bench.write_profile(providers=[entries[0], entries[1] | {"source": "/elsewhere"}])
    with pytest.raises(ProfileCompilationError, match="two sources") as caught:
        await bench.home.profiles.compile("local/mine")
    assert caught.value.code == "source-conflict"


async def test_sources_can_be_limited_and_pins_required(bench: Any, modules: Any) -> None:
    tool = {"module": "tool-own", "source": f"{modules.source}@main#subdirectory=modules/tool-own"}
    bench.write_profile(tools=[tool])
    bench.reopen(security={"allowed_sources": ["git+https://*"]})
    with pytest.raises(ProfileCompilationError, match="source-not-allowed"):
        await bench.home.profiles.compile("local/mine")

    bench.reopen(security={"require_pinned": True})
    with pytest.raises(ProfileCompilationError, match="source-not-pinned"):
        await bench.home.profiles.compile("local/mine")

    commit = modules.git("rev-parse", "HEAD")
    bench.write_profile(tools=[tool | {"source": tool["source"].replace("@main", f"@{commit}")}])
    assert (await bench.home.profiles.compile("local/mine")).status == "fresh"


async def test_a_reference_without_a_ref_is_warned_about(bench: Any, modules: Any) -> None:
    source = f"{modules.source}#subdirectory=modules/tool-own"
    bench.write_profile(tools=[{"module": "tool-own", "source": source}])

    build = await bench.home.profiles.compile("local/mine")

    assert build.warnings == (f"unpinned-ref: {source}",)


async def test_unknown_and_invalid_profiles_are_told_apart(bench: Any) -> None:
    bench.write_profile("empty", text="---\nprofile: {name: empty, version: '1', schema_version: 2}\n---\n")

    with pytest.raises(ProfileNotFoundError):
        await bench.home.profiles.compile("local/nobody")
    with pytest.raises(ProfileValidationError):
        await bench.home.profiles.compile("local/empty")
    with pytest.raises(ValueError, match="Expected format: collection/profile"):
        await bench.home.profiles.compile("../x")
    assert [(each.profile_id.name, each.valid) for each in bench.home.profiles.list()] == [("empty", False)]
    assert (await bench.home.profiles.status("local/empty")).status == "invalid"


def test_a_text_or_a_file_can_be_validated_without_being_in_a_home(bench: Any, tmp_path: Path) -> None:
    good = bench.profile_text("base")
    (tmp_path / "base.md").write_text(good)

    assert bench.home.profiles.validate(good) == ()
    assert bench.home.profiles.validate(tmp_path / "base.md") == ()
    codes = [issue.code for issue in bench.home.profiles.validate(bench.profile_text("x", extends="nobody"))]
    assert "extends-not-found" in codes
    assert bench.home.profiles.validate("no front matter\n")[0].code == "no-frontmatter"


async def test_a_build_keeps_dates_and_other_values_that_json_does_not_know(bench: Any) -> None:
    front = "---\nprofile: {name: mine, version: '1', schema_version: 2}\nsession: {orchestrator: loop-basic}\n"
    bench.write_profile(text=front + "providers: [{module: provider-mock, config: {since: 2024-01-01, 1: one}}]\n---\n")

    first = await bench.home.profiles.compile("local/mine")

    assert await bench.home.profiles.compile("local/mine") == first
