"""Loading one bundle: sources, cache, registration, nesting."""

import asyncio
import json
import logging
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from amplifier_foundation.exceptions import BundleDependencyError, BundleLoadError, BundleNotFoundError
from amplifier_foundation.registry import BundleRegistry, load_bundle

Write = Callable[[str, str], Path]

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"]


def commit(directory: Path) -> str:
    """Put a directory under version control and return its source."""
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "state"]):
        subprocess.run([*GIT, *arguments], cwd=directory, check=True, capture_output=True)
    return f"git+file://{directory}@main"


@pytest.fixture
def repository(write: Write) -> Path:
    """A repository `rep` with a behaviour `beh`."""
    write("R/bundle.md", "---\nbundle: {name: rep, version: 2.0.0}\n---\nRoot.")
    write(
        "R/behaviors/b.yaml",
        "bundle: {name: beh}\ncontext: {include: ['rep:context/c.md', 'beh:x.md']}\nagents: {include: ['rep:one']}\n",
    )
    write("R/agents/one.md", "---\nmeta: {name: one, description: first}\n---\n")
    return write("R/context/c.md", "c").parent.parent


async def test_a_bundle_and_an_agent_load_the_same_way(write: Write, registry: BundleRegistry) -> None:
    bundle = await load_bundle(str(write("x/bundle.md", "---\nbundle: {name: x}\n---\nHi")), registry=registry)
    agent = await load_bundle(
        str(write("x/agents/a.md", "---\nmeta: {name: a, description: d}\n---\nHelp")), registry=registry
    )

    assert (bundle.name, bundle.instruction) == ("x", "Hi")
    assert (agent.name, agent.description, agent.instruction, agent.from_meta) == ("a", "d", "Help", True)
    assert registry.list_registered() == ["x"]


@pytest.mark.parametrize("form", ["{path}", "file://{path}", "./d", "{path}/bundle.yaml"])
async def test_local_sources(
    write: Write, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    path = write("d/bundle.yaml", "bundle: {name: d, version: 3.0.0}").parent
    monkeypatch.chdir(tmp_path)
    registry = BundleRegistry(home)
    source = form.format(path=path)

    bundle = await registry.load(source)

    state = registry.get_state("d")
    assert state is not None
    assert (bundle.name, bundle._source_uri, bundle.base_path) == ("d", source, path)
    assert (state.uri, state.version, state.is_root, state.root_name) == (source, "3.0.0", True, None)
    assert state.loaded_at is not None
    assert state.local_path in (str(path), str(path / "bundle.yaml"))


async def test_a_path_with_a_hash_sign_is_not_mistaken_for_a_path_inside_another_directory(
    write: Write, registry: BundleRegistry
) -> None:
    whole = write("a#b/bundle.yaml", "bundle: {name: whole}").parent
    write("a/b/bundle.yaml", "bundle: {name: part}")

    by_path = await registry.load(str(whole))
    inside = await registry.load(f"file://{whole}")

    assert (by_path.name, inside.name) == ("whole", "part")


async def test_a_path_with_a_hash_sign_is_read_once_for_its_caller_and_those_who_include_it(
    write: Write, registry: BundleRegistry
) -> None:
    base = write("a#b/base.yaml", "bundle: {name: base}")
    derived = write("a#b/derived.yaml", "bundle: {name: derived}\nincludes: [./base.yaml]")

    await registry.load(str(base))
    base.write_text("bundle: {name: base, version: 9.0.0}", encoding="utf-8")
    await registry.load(str(derived))

    state = registry.get_state("base")
    assert state is not None
    assert (state.uri, state.version) == (str(base), "1.0.0")


async def test_a_missing_file_an_empty_directory_and_an_unknown_name(write: Write, registry: BundleRegistry) -> None:
    with pytest.raises(BundleNotFoundError, match="File not found"):
        await registry.load("/no/such/bundle.md")
    with pytest.raises(BundleNotFoundError, match="No handler for URI"):
        await registry.load("no-such-name")
    with pytest.raises(BundleLoadError, match="missing bundle"):
        await registry.load(str(write("empty/readme.txt", "").parent))


async def test_a_failure_is_not_remembered(write: Write, registry: BundleRegistry, tmp_path: Path) -> None:
    path = str(tmp_path / "late.yaml")
    with pytest.raises(BundleNotFoundError):
        await registry.load(path)
    write("late.yaml", "bundle: {name: late}")

    assert (await registry.load(path)).name == "late"


async def test_the_same_source_gives_the_same_object(write: Write, registry: BundleRegistry) -> None:
    path = write("x.yaml", "bundle: {name: x}")
    first = await registry.load(str(path))
    state = registry.get_state("x")
    assert state is not None
    loaded_at = state.loaded_at

    assert await registry.load(str(path)) is first
    assert await registry.load(f"file://{path}") is first
    assert await registry.load("x") is first
    assert state.loaded_at is loaded_at


async def test_those_who_ask_at_the_same_time_get_the_same_object_or_error(
    write: Write, registry: BundleRegistry, tmp_path: Path
) -> None:
    write("y.yaml", "bundle: {name: y}\n")
    path = str(write("x.yaml", "bundle: {name: x}\nincludes: [./y.yaml]\n"))

    missing = str(tmp_path / "no.yaml")

    first, second = await asyncio.gather(registry.load(path), registry.load(path))
    errors = await asyncio.gather(*(registry.load(missing) for _ in range(2)), return_exceptions=True)

    assert first is second
    assert all(isinstance(error, BundleNotFoundError) for error in errors)
    assert errors[0] is errors[1]


async def test_one_callers_cancellation_does_not_disturb_the_other(write: Write, registry: BundleRegistry) -> None:
    path = str(write("x.yaml", "bundle: {name: x}"))
    impatient, patient = asyncio.create_task(registry.load(path)), asyncio.create_task(registry.load(path))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    impatient.cancel()

    assert (await patient).name == "x"
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_an_explicit_load_is_remembered_for_good_and_saved(
    write: Write, registry: BundleRegistry, home: Path
) -> None:
    path = str(write("x.yaml", "bundle: {name: x}"))
    await load_bundle(path, registry=registry)
    state = registry.get_state("x")
    assert state is not None
    assert not state.explicitly_requested
    assert not list(home.parent.glob("home"))

    await registry.load(path)
    await load_bundle(path, registry=registry)
    await registry.load()

    assert state.explicitly_requested
    assert json.loads((home / "registry.json").read_text(encoding="utf-8"))["bundles"]["x"]["explicitly_requested"]


async def test_loading_all_leaves_out_what_fails(
    write: Write, registry: BundleRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.register({"good": str(write("x.yaml", "bundle: {name: x}")), "bad": "/no/such/file.yaml"})

    with caplog.at_level(logging.WARNING):
        bundles = await registry.load()

    assert list(bundles) == ["good"]
    assert "bad" in caplog.text
    state = registry.get_state("good")
    assert state is not None
    assert not state.explicitly_requested


async def test_an_alias_and_the_bundles_own_name_are_both_registered(write: Write, registry: BundleRegistry) -> None:
    path = str(write("x.yaml", "bundle: {name: own, version: 4.0.0}"))
    registry.register({"alias": path})

    await registry.load("alias")

    states = registry.get_state()
    assert {(name, state.uri, state.version, state.local_path) for name, state in states.items()} == {
        ("alias", path, "4.0.0", path),
        ("own", path, "4.0.0", path),
    }


async def test_nameless_bundles_are_not_registered(write: Write, registry: BundleRegistry) -> None:
    await registry.load(str(write("x.yaml", "tools: []")))

    assert registry.list_registered() == []


async def test_an_update_reads_the_file_again(write: Write, registry: BundleRegistry) -> None:
    write("part.yaml", "bundle: {name: part}\ntools: [{module: old}]\n")
    path = str(write("x.yaml", "bundle: {name: x, version: 1.0.0}\nincludes: [./part.yaml]\n"))
    before = await registry.load(path)
    write("x.yaml", "bundle: {name: x, version: 2.0.0}\nincludes: [./part.yaml]\n")
    write("part.yaml", "bundle: {name: part}\ntools: [{module: new}]\n")

    after = await registry.update("x")

    state = registry.get_state("x")
    assert state is not None
    assert (before.version, after.version, state.version) == ("1.0.0", "2.0.0", "2.0.0")
    assert after.tools == [{"module": "new"}]
    assert state.checked_at is not None
    assert await registry.load("x") is after
    assert list(await registry.update()) == ["part", "x"]


async def test_an_update_of_an_unknown_name_is_a_key_error(registry: BundleRegistry) -> None:
    with pytest.raises(KeyError):
        await registry.update("nobody")


async def test_an_update_asks_a_git_source_for_news(repository: Path, registry: BundleRegistry) -> None:
    uri = commit(repository)
    assert (await registry.load(uri)).version == "2.0.0"
    (repository / "bundle.md").write_text("---\nbundle: {name: rep, version: 3.0.0}\n---\n", encoding="utf-8")
    commit(repository)

    assert (await registry.load(uri)).version == "2.0.0"
    assert (await registry.update("rep")).version == "3.0.0"


async def test_an_update_moves_the_modules_of_a_bundle_and_of_its_agents(
    write: Write, registry: BundleRegistry, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module = write("module/amplifier_module_tool_m/__init__.py", "VERSION = 1\n").parents[1]
    of_agent = write("of-agent/amplifier_module_tool_a/__init__.py", "VERSION = 1\n").parents[1]
    source, agent_source = commit(module), commit(of_agent)
    tools = [{"module": "tool-m", "source": source}, {"module": "tool-gone", "source": f"git+file://{home}/gone@main"}]
    agents = {"a": {"tools": [{"module": "tool-a", "source": agent_source}]}}
    path = write("x.yaml", json.dumps({"bundle": {"name": "x"}, "tools": tools, "agents": agents}))
    bundle = await registry.load(str(path))
    before = (await bundle.prepare(cache_dir=home / "cache")).resolver
    for folder in (module, of_agent):
        next(folder.glob("amplifier*/__init__.py")).write_text("VERSION = 2\n")
        commit(folder)

    bundle = await registry.update("x")
    after = (await bundle.prepare(cache_dir=home / "cache")).resolver

    for module_id, package in (("tool-m", "amplifier_module_tool_m"), ("tool-a", "amplifier_module_tool_a")):
        files = [resolver.resolve(module_id).resolve() / package / "__init__.py" for resolver in (before, after)]
        assert [file.read_text() for file in files] == ["VERSION = 1\n", "VERSION = 2\n"]
    assert "what is new at" in caplog.text


def test_strictness_belongs_to_the_registry(registry: BundleRegistry) -> None:
    with pytest.raises(ValueError, match="Cannot pass strict=True"):
        asyncio.run(load_bundle("x", registry=registry, strict=True))


async def test_without_a_registry_the_default_home_is_used(
    write: Write, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(home))
    path = write("x.yaml", "bundle: {name: x}\nincludes: [./no.yaml]\n")

    assert (await load_bundle(path)).name == "x"
    with pytest.raises(BundleDependencyError, match="strict mode"):
        await load_bundle(path, strict=True)


async def test_a_load_without_includes_does_not_stand_in_for_a_complete_one(
    write: Write, registry: BundleRegistry
) -> None:
    write("part.yaml", "bundle: {name: part}\ntools: [{module: t}]\n")
    path = str(write("x.yaml", "bundle: {name: x}\nincludes: [./part.yaml]\n"))

    partial = await load_bundle(path, registry=registry, auto_include=False)
    complete = await load_bundle(path, registry=registry)

    assert (partial.tools, complete.tools) == ([], [{"module": "t"}])
    assert partial._source_uri == complete._source_uri == path
    assert (await load_bundle(path, registry=registry, auto_include=False)).tools == []


async def test_files_are_read_off_the_event_loop(
    write: Write, registry: BundleRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("y.md", "---\nbundle: {name: y}\n---\n")
    path = str(write("x.yaml", "bundle: {name: x}\nincludes: [./y.md]\n"))
    readers: set[int] = set()
    original = Path.read_bytes

    def read_bytes(self: Path) -> bytes:
        readers.add(threading.get_ident())
        return original(self)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    await registry.load(path)

    assert readers
    assert threading.get_ident() not in readers


async def test_a_root_bundle_has_no_namespaces_of_its_own_yet(repository: Path, registry: BundleRegistry) -> None:
    uri = commit(repository)

    bundle = await registry.load(uri)

    state = registry.get_state("rep")
    assert state is not None
    assert bundle.source_base_paths == {}
    assert (state.uri, state.is_root, state.root_name, state.local_path) == (uri, True, None, str(bundle.base_path))


@pytest.mark.parametrize("namespace_root", [None, ".."])
async def test_a_nested_bundle_knows_its_root_and_itself(
    repository: Path, registry: BundleRegistry, namespace_root: str | None
) -> None:
    if namespace_root:
        (repository / "behaviors/b.yaml").write_text("bundle: {name: beh, namespace_root: ..}", encoding="utf-8")
    root_uri = commit(repository)
    uri = f"{root_uri}#subdirectory=behaviors/b.yaml"

    bundle = await registry.load(uri)

    assert bundle.base_path is not None
    tree = bundle.base_path.parent
    assert bundle.source_base_paths == {"rep": tree, "beh": tree if namespace_root else tree / "behaviors"}
    rep, beh = registry.get_state("rep"), registry.get_state("beh")
    assert rep is not None
    assert beh is not None
    assert (rep.uri, rep.is_root, rep.root_name, rep.local_path) == (root_uri, True, None, str(tree))
    assert (beh.uri, beh.is_root, beh.root_name) == (uri, False, "rep")
    assert beh.local_path == str(tree / "behaviors/b.yaml")
    if not namespace_root:
        bundle.resolve_pending_context()
        assert bundle.context == {"rep:context/c.md": tree / "context/c.md", "beh:x.md": tree / "behaviors/x.md"}
        assert bundle.resolve_agent_path("rep:one") == tree / "agents/one.md"


async def test_the_root_of_a_local_nested_file_is_registered_by_its_directory(
    repository: Path, registry: BundleRegistry
) -> None:
    bundle = await registry.load(f"file://{repository}/behaviors/b.yaml")

    rep, beh = registry.get_state("rep"), registry.get_state("beh")
    assert rep is not None
    assert beh is not None
    assert bundle.source_base_paths == {"rep": repository, "beh": repository / "behaviors"}
    assert (rep.uri, rep.local_path, rep.is_root) == (f"file://{repository}", str(repository), True)
    assert rep.version == "2.0.0"
    assert rep.loaded_at is not None
    assert (beh.is_root, beh.root_name) == (False, "rep")


async def test_a_directory_with_its_own_bundle_is_a_root_by_path_and_nested_by_subdirectory(
    repository: Path, write: Write, home: Path
) -> None:
    write("R/sub/bundle.yaml", "bundle: {name: sub}")

    by_path, by_subdirectory = BundleRegistry(home / "1"), BundleRegistry(home / "2")
    await by_path.load(str(repository / "sub"))
    await by_subdirectory.load(f"file://{repository}#subdirectory=sub")

    assert [registry.get_state()["sub"].is_root for registry in (by_path, by_subdirectory)] == [True, False]


async def test_a_nested_bundle_with_the_roots_name_counts_as_root(repository: Path, registry: BundleRegistry) -> None:
    (repository / "behaviors/b.yaml").write_text("bundle: {name: rep, version: 9.0.0}", encoding="utf-8")
    root_uri = commit(repository)

    bundle = await registry.load(f"{root_uri}#subdirectory=behaviors/b.yaml")

    state = registry.get_state("rep")
    assert state is not None
    assert bundle.base_path is not None
    assert bundle.source_base_paths == {"rep": bundle.base_path.parent}
    assert (state.uri, state.is_root) == (root_uri, True)


async def test_a_bundle_beside_the_root_file_counts_as_root(repository: Path, registry: BundleRegistry) -> None:
    (repository / "beside.yaml").write_text("bundle: {name: beside}", encoding="utf-8")

    bundle = await registry.load(str(repository / "beside.yaml"))

    assert bundle.source_base_paths == {}
    assert registry.get_state()["beside"].is_root


async def test_the_root_between_a_bundle_and_its_tree_gives_the_namespace(
    write: Write, registry: BundleRegistry
) -> None:
    tree = write("tree/readme.md", "").parent
    write("tree/a/bundle.yaml", "bundle: {name: a}")
    write("tree/a/b/c.yaml", "bundle: {name: c}")
    uri = commit(tree)

    bundle = await registry.load(f"{uri}#subdirectory=a/b/c.yaml")

    assert bundle.base_path is not None
    assert bundle.source_base_paths["a"] == bundle.base_path.parent
    assert registry.find("a") == f"{uri}#subdirectory=a"


async def test_a_part_of_a_tree_does_not_speak_for_its_root(repository: Path, registry: BundleRegistry) -> None:
    uri = commit(repository)
    await registry.load(uri)
    (repository / "behaviors/b.yaml").write_text("bundle: {name: rep, version: 9.0.0}", encoding="utf-8")
    commit(repository)

    await registry.load(f"{uri}#subdirectory=behaviors/b.yaml")

    state = registry.get_state("rep")
    assert state is not None
    assert (state.uri, state.version) == (uri, "2.0.0")


async def test_a_path_is_a_source_where_a_registry_takes_one(registry: BundleRegistry, write: Write) -> None:
    path = write("b/bundle.yaml", "bundle: {name: b}\n")
    registry.register({"alias": path.parent})

    assert registry.find("alias") == str(path.parent)
    assert (await registry.load("alias")).name == "b"
    assert (await registry.load(path)).name == "b"


async def test_a_bundle_inside_a_registered_one_is_loaded_by_its_namespace(
    write: Write, registry: BundleRegistry
) -> None:
    root = write("f/bundle.md", "---\nbundle: {name: outer}\n---\nThe root.\n").parent
    write("f/agents/scout.md", "---\nmeta: {name: scout, description: Looks around.}\n---\nLook.\n")
    write("f/bundles/inner.yaml", "bundle: {name: inner}\nincludes: [outer]\nagents: {include: ['outer:scout']}\n")
    registry.register("outer", str(root))

    bundle = await load_bundle("outer:bundles/inner", registry=registry)
    prepared = await bundle.prepare(cache_dir=root / "cache")

    assert (bundle.name, bundle.instruction) == ("inner", "The root.")
    assert prepared.mount_plan["agents"]["outer:scout"]["description"] == "Looks around."
    with pytest.raises(BundleNotFoundError, match=r"'outer' .* has no 'bundles/nothing'"):
        await load_bundle("outer:bundles/nothing", registry=registry)
