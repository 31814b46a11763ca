"""Includes: what they mean, the order they are composed in, circles and failures."""

import asyncio
import json
import logging
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amplifier_foundation.bundle import Bundle, Origin
from amplifier_foundation.exceptions import BundleDependencyError, BundleError, BundleLoadError
from amplifier_foundation.registry import BundleRegistry, load_bundle

Write = Callable[[str, str], Path]

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"]


def commit(directory: Path) -> str:
    """Put a directory under version control and return its source."""
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "state"]):
        subprocess.run([*GIT, *arguments], cwd=directory, check=True, capture_output=True)
    return f"git+file://{directory}@main"


def commit_again(directory: Path) -> str:
    """Commit what changed in a directory and return the source of that commit's part."""
    for arguments in (["add", "."], ["commit", "-q", "-m", "more"]):
        subprocess.run([*GIT, *arguments], cwd=directory, check=True, capture_output=True)
    head = subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=directory, check=True, capture_output=True, text=True)
    return f"git+file://{directory}@{head.stdout.strip()}#subdirectory=part"


def bundle_text(name: str, *includes: str, **sections: Any) -> str:
    """A YAML bundle with one tool named like itself."""
    head = {"bundle": {"name": name}, "includes": [{"bundle": include} for include in includes]}
    return json.dumps({**head, "tools": [{"module": f"tool-{name}"}], **sections})


def tools_of(bundle: Bundle) -> list[str]:
    return [tool["module"] for tool in bundle.tools]


async def test_later_includes_override_earlier_ones_and_the_including_file_all(
    write: Write, registry: BundleRegistry
) -> None:
    for name in ("one", "two"):
        write(f"{name}.yaml", bundle_text(name, session={"by": name, name: True}, agents={"a": {"description": name}}))
    write("two.md", "---\nbundle: {name: two-md}\nsession: {by: two-md}\n---\nFrom two.")
    path = write("x.yaml", bundle_text("x", "./one.yaml", "./two.yaml", "./two.md", session={"own": 1}))

    bundle = await registry.load(str(path))

    assert tools_of(bundle) == ["tool-one", "tool-two", "tool-x"]
    assert bundle.session == {"by": "two-md", "one": True, "two": True, "own": 1}
    assert (bundle.name, bundle.instruction, bundle.agents) == ("x", "From two.", {"a": {"description": "two"}})


async def test_includes_are_text_or_name_a_bundle_and_other_shapes_are_reported(
    write: Write, registry: BundleRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    write("a.yaml", bundle_text("a"))
    write("b.yaml", bundle_text("b"))
    path = write(
        "x.yaml",
        "bundle: {name: x}\nincludes: [./a.yaml, {bundle: ./b.yaml}, {behavior: ./c.yaml}, 5, {bundle: null}, null]\n",
    )

    with caplog.at_level(logging.WARNING):
        bundle = await registry.load(str(path))

    assert tools_of(bundle) == ["tool-a", "tool-b"]
    assert caplog.text.count("is ignored") == 4
    assert "behavior" in caplog.text


async def test_a_fetched_bundle_never_reads_the_working_directory(
    write: Write, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    repository = write("repository/bundle.yaml", bundle_text("fetched", "./secret.yaml", "../outside.yaml")).parent
    source = commit(repository)
    write("work/secret.yaml", bundle_text("secret"))
    write("outside.yaml", bundle_text("outside"))
    monkeypatch.chdir(tmp_path / "work")

    with caplog.at_level(logging.WARNING):
        bundle = await BundleRegistry(home).load(source)

    assert tools_of(bundle) == ["tool-fetched"]
    assert f"{source} has no file './secret.yaml'" in caplog.text
    with pytest.raises(BundleDependencyError, match=r"has no file './secret\.yaml'"):
        await BundleRegistry(home, strict=True).load(source)


async def test_a_fetched_bundle_includes_nothing_from_outside_its_tree(
    write: Write, home: Path, tmp_path: Path
) -> None:
    repository = write("repository/bundle.yaml", bundle_text("fetched")).parent
    await BundleRegistry(home).load(commit(repository))
    (tree,) = [path for path in (home / "cache" / "git").iterdir() if path.is_dir()]
    beside = tree.with_name("beside.yaml")
    beside.write_text(bundle_text("beside"))
    write("repository/part/bundle.yaml", bundle_text("part", "../../beside.yaml"))
    other = commit_again(repository)

    bundle = await BundleRegistry(home).load(other)

    assert tools_of(bundle) == ["tool-part"]


async def test_a_relative_include_counts_from_the_including_file_then_from_the_working_directory(
    write: Write, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    registry = BundleRegistry(home)
    write("both.yaml", bundle_text("wrong"))
    write("here.yaml", bundle_text("here"))
    write("d/both.yaml", bundle_text("right"))
    write("up.yaml", bundle_text("up"))
    path = write("d/x.yaml", bundle_text("x", "./both.yaml", "./here.yaml", "../up.yaml"))

    assert tools_of(await registry.load(str(path))) == ["tool-right", "tool-here", "tool-up", "tool-x"]


async def test_a_relative_include_of_a_fetched_bundle_stays_with_its_source(
    write: Write, registry: BundleRegistry
) -> None:
    tree = write("R/behaviors/b.yaml", bundle_text("b")).parent.parent
    write("R/bundle.yaml", bundle_text("r", "./behaviors/b.yaml"))
    uri = commit(tree)

    bundle = await registry.load(uri)

    assert tools_of(bundle) == ["tool-b", "tool-r"]
    assert registry.find("b") == f"{uri}#subdirectory=behaviors/b.yaml"


@pytest.mark.parametrize(
    ("include", "file"),
    [
        ("ns:p.yaml", "p.yaml"),
        ("ns:p", "p.yaml"),
        ("ns:p", "p.yml"),
        ("ns:p", "p.md"),
        ("ns:p", "p/bundle.yaml"),
        ("ns:p", "p/bundle.md"),
        ("ns:deep/p", "deep/p.yaml"),
        ("ns:gpt-5.4", "gpt-5.4.yaml"),
    ],
)
@pytest.mark.parametrize("is_git", [False, True])
async def test_a_path_in_a_namespace_is_found_with_its_suffix(
    write: Write, registry: BundleRegistry, include: str, file: str, is_git: bool
) -> None:
    root = write("N/bundle.yaml", bundle_text("ns")).parent
    text = bundle_text("found")
    write(f"N/{file}", f"---\n{text}\n---\n" if file.endswith(".md") else text)
    write("N/gpt-5.yaml", bundle_text("wrong"))
    registry.register({"ns": commit(root) if is_git else f"file://{root}"})

    bundle = await registry.load(str(write("x.yaml", bundle_text("x", include))))

    assert tools_of(bundle) == ["tool-found", "tool-x"]
    assert (registry.find("found") or "").startswith("git+file://" if is_git else f"file://{root}/")


async def test_a_namespace_that_is_itself_nested_in_a_repository_keeps_its_directory(
    write: Write, registry: BundleRegistry
) -> None:
    tree = write("R/sub/bundle.yaml", bundle_text("sub")).parent.parent
    write("R/sub/behaviors/b.yaml", bundle_text("b"))
    uri = commit(tree)
    registry.register({"sub": f"{uri}#subdirectory=sub"})

    bundle = await registry.load(str(write("x.yaml", bundle_text("x", "sub:behaviors/b"))))

    assert tools_of(bundle) == ["tool-b", "tool-x"]
    assert registry.find("b") == f"{uri}#subdirectory=sub/behaviors/b.yaml"


async def test_the_namespace_of_a_behaviour_file_is_the_directory_it_lies_in(
    write: Write, registry: BundleRegistry
) -> None:
    tree = write("R/bundle.yaml", bundle_text("r")).parent
    write("R/behaviors/b.yaml", bundle_text("b"))
    write("R/behaviors/c.yaml", bundle_text("c"))
    uri = commit(tree)
    await registry.load(f"{uri}#subdirectory=behaviors/b.yaml")

    bundle = await registry.load(str(write("x.yaml", bundle_text("x", "b:c"))))

    assert tools_of(bundle) == ["tool-c", "tool-x"]
    assert registry.find("c") == f"{uri}#subdirectory=behaviors/c.yaml"


async def test_a_namespace_without_place_is_read_first_but_not_included(write: Write, registry: BundleRegistry) -> None:
    root = write("N/bundle.yaml", bundle_text("ns", "./other.yaml")).parent
    write("N/other.yaml", bundle_text("other"))
    write("N/p.yaml", bundle_text("p"))
    registry.register({"ns": str(root)})

    bundle = await registry.load(str(write("x.yaml", bundle_text("x", "ns:p"))))
    complete = await registry.load("ns")

    assert tools_of(bundle) == ["tool-p", "tool-x"]
    assert tools_of(complete) == ["tool-other", "tool-ns"]


async def test_a_namespace_that_cannot_be_read_is_an_error(write: Write, registry: BundleRegistry) -> None:
    registry.register({"ns": "/no/such/place"})

    with pytest.raises(BundleDependencyError, match=r"namespace 'ns' failed to load"):
        await registry.load(str(write("x.yaml", bundle_text("x", "ns:p"))))


async def test_a_namespace_that_another_include_brings_is_known_in_time(write: Write, registry: BundleRegistry) -> None:
    write("N/bundle.yaml", bundle_text("ns"))
    write("N/p.yaml", bundle_text("p"))
    path = write("x.yaml", bundle_text("x", "ns:p", "./N"))

    assert tools_of(await registry.load(str(path))) == ["tool-p", "tool-ns", "tool-x"]


@pytest.mark.parametrize("order", [("./N", "ns:no"), ("ns:no", "./N")])
async def test_a_path_that_a_known_namespace_lacks_is_an_error_even_when_not_strict(
    write: Write, registry: BundleRegistry, order: tuple[str, str]
) -> None:
    write("N/bundle.yaml", bundle_text("ns"))

    with pytest.raises(BundleDependencyError, match="Include resolution failed") as error:
        await registry.load(str(write("x.yaml", bundle_text("x", *order))))

    assert "ns:no" in str(error.value)
    assert "x.yaml" in str(error.value)


async def test_an_unknown_namespace_is_skipped_or_in_strict_mode_an_error(
    write: Write, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(write("x.yaml", bundle_text("x", "nobody:p")))

    with caplog.at_level(logging.WARNING):
        assert tools_of(await BundleRegistry(home).load(path)) == ["tool-x"]
    assert "nobody" in caplog.text
    with pytest.raises(BundleDependencyError, match="strict mode"):
        await BundleRegistry(home, strict=True).load(path)


async def test_an_application_may_send_an_include_elsewhere(write: Write, home: Path) -> None:
    elsewhere = str(write("elsewhere.yaml", bundle_text("elsewhere")))
    write("a.yaml", bundle_text("a"))
    path = str(write("x.yaml", bundle_text("x", "./a.yaml", "nobody:p")))
    asked: list[str] = []

    def override(text: str) -> str | None:
        asked.append(text)
        return elsewhere if text == "nobody:p" else None

    registry = BundleRegistry(home, include_source_resolver=override)
    assert tools_of(await registry.load(path)) == ["tool-a", "tool-elsewhere", "tool-x"]
    assert asked == ["./a.yaml", "nobody:p"]

    other = BundleRegistry(home / "other", include_source_resolver=override)
    other.set_include_source_resolver(None)
    assert tools_of(await other.load(path)) == ["tool-a", "tool-x"]


async def test_registered_names_can_be_included(write: Write, registry: BundleRegistry) -> None:
    registry.register({"short": str(write("a.yaml", bundle_text("a")))})

    assert tools_of(await registry.load(str(write("x.yaml", bundle_text("x", "short"))))) == ["tool-a", "tool-x"]


async def test_a_bundle_whose_includes_all_fail_is_returned_as_it_is(write: Write, registry: BundleRegistry) -> None:
    path = write("x.yaml", bundle_text("x", "./no.yaml", context={"include": ["c.md"]}))

    bundle = await registry.load(str(path))

    assert list(bundle.context) == ["c.md"]
    assert bundle.origins == {}


async def test_a_nested_bundle_in_a_repository_may_include_its_own_root(write: Write, registry: BundleRegistry) -> None:
    root = write("F/bundle.md", "---\nbundle: {name: foundation}\ntools: [{module: tool-root}]\n---\nRoot.").parent
    write("F/providers/anthropic-opus.yaml", bundle_text("opus"))
    write("F/bundles/with-anthropic.yaml", bundle_text("with", "foundation", "foundation:providers/anthropic-opus"))
    registry.register({"foundation": commit(root)})

    bundle = await load_bundle(
        f"{registry.find('foundation')}#subdirectory=bundles/with-anthropic.yaml", registry=registry
    )

    assert tools_of(bundle) == ["tool-root", "tool-opus", "tool-with"]
    assert set(bundle.source_base_paths) == {"foundation", "opus", "with"}
    assert [name for name, state in registry.get_state().items() if state.is_root] == ["foundation"]


async def test_each_file_is_read_once_however_often_it_is_included(
    write: Write, registry: BundleRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write("R/bundle.yaml", bundle_text("r", *(f"r:parts/p{number}" for number in range(8)))).parent
    write("R/shared/s.yaml", bundle_text("s"))
    for number in range(8):
        write(f"R/parts/p{number}.yaml", bundle_text(f"p{number}", "r:shared/s", "../shared/s.yaml"))
    read: list[str] = []
    original = Path.read_bytes

    def read_bytes(self: Path) -> bytes:
        read.append(self.name)
        return original(self)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    bundle = await registry.load(str(root))

    assert sorted(read) == sorted(["bundle.yaml", "s.yaml", *(f"p{number}.yaml" for number in range(8))])
    assert tools_of(bundle) == ["tool-s", *(f"tool-p{number}" for number in range(8)), "tool-r"]


async def test_includes_are_fetched_at_the_same_time(write: Write, registry: BundleRegistry) -> None:
    arrived: set[str] = set()
    all_there = asyncio.Event()

    class Meeting:
        """A source that is ready only when all three are being asked for."""

        def can_handle(self, parsed: Any) -> bool:
            return bool(parsed.scheme == "meet")

        async def resolve(self, parsed: Any, cache_dir: Path) -> Any:
            arrived.add(parsed.host)
            if len(arrived) == 3:
                all_there.set()
            await asyncio.wait_for(all_there.wait(), 10)
            return await registry.source_resolver.resolve(str(write(f"{parsed.host}.yaml", bundle_text(parsed.host))))

    registry.source_resolver.add_handler(Meeting())
    path = write("x.yaml", bundle_text("x", "meet://a", "meet://b", "meet://c"))

    assert tools_of(await registry.load(str(path))) == ["tool-a", "tool-b", "tool-c", "tool-x"]


async def test_relations_are_recorded_and_replaced(write: Write, registry: BundleRegistry, home: Path) -> None:
    for name in ("a", "b", "c"):
        write(f"{name}.yaml", bundle_text(name))
    path = str(write("x.yaml", bundle_text("x", "./a.yaml", "./b.yaml")))
    await load_bundle(path, registry=registry)
    states = registry.get_state()
    assert (states["x"].includes, states["a"].included_by, states["b"].included_by) == (["a", "b"], ["x"], ["x"])
    assert json.loads((home / "registry.json").read_text(encoding="utf-8"))["bundles"]["x"]["includes"] == ["a", "b"]

    write("x.yaml", bundle_text("x", "./b.yaml", "./c.yaml"))
    await registry.update("x")

    states = registry.get_state()
    assert states["x"].includes == ["b", "c"]
    assert [states[name].included_by for name in ("a", "b", "c")] == [[], ["x"], ["x"]]


async def test_the_registry_is_saved_once_for_a_whole_tree(
    write: Write, registry: BundleRegistry, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("c.yaml", bundle_text("c"))
    write("b.yaml", bundle_text("b", "./c.yaml"))
    write("a.yaml", bundle_text("a", "./c.yaml"))
    path = str(write("x.yaml", bundle_text("x", "./a.yaml", "./b.yaml")))
    renamed: list[Path] = []
    original = Path.replace

    def replace(self: Path, target: Path) -> Path:
        renamed.append(target)
        return original(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    await registry.load(path)

    assert renamed == [home / "registry.json"]


async def test_origins_tell_the_way_an_item_took(write: Write, registry: BundleRegistry) -> None:
    write("z.yaml", bundle_text("z"))
    write("y.yaml", '{"bundle": {"name": "y"}, "includes": ["./z.yaml"]}')
    path = write("x.yaml", '{"bundle": {"name": "x"}, "includes": ["./y.yaml"]}')

    bundle = await registry.load(str(path))

    assert bundle.origins["tool:tool-z"] == [Origin("z", None), Origin("y", "z"), Origin("x", "y")]


async def test_a_value_is_explained_across_includes(write: Write, registry: BundleRegistry) -> None:
    base = write("base.md", "---\nbundle: {name: base}\ntools:\n- module: tool-bash\n  config:\n    timeout: 10\n---\n")
    top = write(
        "top.md",
        "---\nbundle:\n  name: top\nincludes: [./base.md]\ntools:\n- module: tool-bash\n  config: {timeout: 30}\n---\n",
    )

    bundle = await registry.load(str(top))

    assert bundle.explain("tools[tool-bash].config.timeout") == {
        "value": 30,
        "origin": {"bundle": "top", "file": str(top), "line": 7},
        "overrode": [
            {"value": 10, "origin": {"bundle": "base", "file": str(base), "line": 6}, "merged": False},
        ],
    }


@pytest.mark.parametrize("strict", [False, True])
async def test_bundles_that_include_each_other_are_loaded_without_the_include_that_closes_the_circle(
    write: Write, home: Path, strict: bool, caplog: pytest.LogCaptureFixture
) -> None:
    write("a.yaml", bundle_text("a", "./b.yaml"))
    write("b.yaml", bundle_text("b", "./a.yaml"))
    path = str(write("x.yaml", bundle_text("x", "./a.yaml", "./b.yaml")))
    registry = BundleRegistry(home, strict=strict)

    with caplog.at_level(logging.WARNING):
        bundle = await asyncio.wait_for(registry.load(path), 30)

    assert tools_of(bundle) == ["tool-b", "tool-a", "tool-x"]
    assert "Circular Include Skipped" in caplog.text
    assert "Circular dependency detected" in caplog.text
    assert await registry.load(path) is bundle


@pytest.mark.parametrize("first", ["a", "b", "x"])
async def test_what_was_loaded_before_does_not_change_what_a_circle_gives(
    write: Write, home: Path, tmp_path: Path, first: str
) -> None:
    write("a.yaml", bundle_text("a", "./b.yaml"))
    write("b.yaml", bundle_text("b", "./a.yaml"))
    write("x.yaml", bundle_text("x", "./a.yaml", "./b.yaml"))
    registry = BundleRegistry(home)
    await registry.load(str(tmp_path / f"{first}.yaml"))

    loaded = {name: tools_of(await registry.load(str(tmp_path / f"{name}.yaml"))) for name in "abx"}

    assert loaded == {
        "a": ["tool-b", "tool-a"],
        "b": ["tool-a", "tool-b"],
        "x": ["tool-b", "tool-a", "tool-x"],
    }


async def test_a_bundle_that_includes_itself_is_loaded_once(write: Write, registry: BundleRegistry) -> None:
    path = str(write("x.yaml", bundle_text("x", "./x.yaml", "x:x.yaml")))

    assert tools_of(await asyncio.wait_for(registry.load(path), 30)) == ["tool-x"]


async def test_a_circle_through_subdirectories_of_a_repository_ends(write: Write, registry: BundleRegistry) -> None:
    tree = write("R/bundle.yaml", bundle_text("r", "r:parts/one")).parent
    write("R/parts/one.yaml", bundle_text("one", "r:parts/two"))
    write("R/parts/two.yaml", bundle_text("two", "r:parts/one", "r"))
    uri = commit(tree)

    bundle = await asyncio.wait_for(registry.load(f"{uri}#subdirectory=parts/one.yaml"), 30)
    root = await asyncio.wait_for(registry.load(uri), 30)

    assert sorted(tools_of(bundle)) == ["tool-one", "tool-r", "tool-two"]
    assert tools_of(root) == ["tool-two", "tool-one", "tool-r"]


async def test_two_loads_of_a_circle_at_the_same_time_both_end(write: Write, registry: BundleRegistry) -> None:
    a = str(write("a.yaml", bundle_text("a", "./b.yaml")))
    b = str(write("b.yaml", bundle_text("b", "./a.yaml")))

    first, second = await asyncio.wait_for(asyncio.gather(registry.load(a), registry.load(b)), 30)

    assert (tools_of(first), tools_of(second)) == (["tool-b", "tool-a"], ["tool-a", "tool-b"])


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(2, 12).flatmap(
        lambda count: st.lists(st.sets(st.integers(0, count - 1)), min_size=count, max_size=count)
    )
)
def test_however_bundles_include_each_other_a_load_ends_with_all_that_can_be_reached(
    tmp_path: Path, graph: list[set[int]]
) -> None:
    directory = tmp_path.resolve() / f"graph{sum(1 for _ in tmp_path.iterdir())}"
    directory.mkdir()
    for number, targets in enumerate(graph):
        text = bundle_text(f"n{number}", *(f"./n{target}.yaml" for target in sorted(targets)))
        (directory / f"n{number}.yaml").write_text(text, encoding="utf-8")
    reachable, open_numbers = set[int](), {0}
    while open_numbers:
        reachable |= open_numbers
        open_numbers = set().union(*(graph[number] for number in open_numbers)) - reachable

    loads = [
        asyncio.run(asyncio.wait_for(BundleRegistry(directory / "home").load(str(directory / "n0.yaml")), 30))
        for _ in range(2)
    ]

    assert set(tools_of(loads[0])) == {f"tool-n{number}" for number in reachable}
    assert loads[0] == loads[1]


@pytest.mark.parametrize("depth", [1, 2, 4])
async def test_a_failing_include_is_skipped_or_in_strict_mode_an_error_from_any_depth(
    write: Write, home: Path, depth: int, caplog: pytest.LogCaptureFixture
) -> None:
    write("b0.yaml", "bundle: [")
    for level in range(1, depth + 1):
        write(f"b{level}.yaml", bundle_text(f"b{level}", f"./b{level - 1}.yaml"))
    path = str(home.parent / f"b{depth}.yaml")

    with caplog.at_level(logging.WARNING):
        bundle = await BundleRegistry(home).load(path)
    assert tools_of(bundle) == [f"tool-b{level}" for level in range(1, depth + 1)]
    assert "Include Failed (skipping)" in caplog.text

    with pytest.raises(BundleDependencyError, match="strict mode") as error:
        await BundleRegistry(home, strict=True).load(path)
    assert "b0.yaml" in str(error.value)
    cause: BaseException | None = error.value
    for _ in range(depth):
        assert cause is not None
        cause = cause.__cause__
    assert isinstance(cause, BundleLoadError)


async def test_a_namespace_failure_deep_down_is_skipped_or_in_strict_mode_an_error(write: Write, home: Path) -> None:
    write("N/bundle.yaml", bundle_text("ns", "ns:no"))
    path = str(write("x.yaml", bundle_text("x", "./N")))

    assert tools_of(await BundleRegistry(home).load(path)) == ["tool-x"]
    with pytest.raises(BundleDependencyError, match="strict mode"):
        await BundleRegistry(home, strict=True).load(path)


async def test_includes_without_end_are_cut_off(write: Write, home: Path, tmp_path: Path) -> None:
    for level in range(150):
        write(f"d{level}.yaml", bundle_text(f"d{level}", f"./d{level + 1}.yaml"))
    write("d150.yaml", bundle_text("d150"))

    with pytest.raises(BundleError, match="levels deep"):
        await BundleRegistry(home, strict=True).load(str(tmp_path / "d0.yaml"))


async def test_a_namespace_whose_source_was_loaded_by_itself_before_is_known(
    write: Write, registry: BundleRegistry
) -> None:
    root = write("root/bundle.yaml", bundle_text("root")).parent
    write("root/behaviors/b.yaml", bundle_text("b"))
    path = write("x.yaml", bundle_text("x", "alias:behaviors/b"))
    await registry.load(str(root))
    registry.register({"alias": str(root)})

    bundle = await registry.load(str(path))

    assert tools_of(bundle) == ["tool-b", "tool-x"]


async def test_an_include_that_is_sent_to_no_source_fails_like_any_other(write: Write, home: Path) -> None:
    path = write("x.yaml", bundle_text("x", "somewhere"))
    registry = BundleRegistry(home, include_source_resolver=lambda _: "")

    assert tools_of(await registry.load(str(path))) == ["tool-x"]


async def test_what_a_nameless_bundle_brings_belongs_to_whoever_includes_it(
    write: Write, registry: BundleRegistry
) -> None:
    write("nameless.yaml", json.dumps({"tools": [{"module": "tool-n"}], "agents": {"a": {"description": "A."}}}))
    path = write("x.yaml", bundle_text("x", "./nameless.yaml"))

    bundle = await registry.load(str(path))

    assert bundle.origins["tool:tool-n"] == bundle.origins["agent:a"] == [Origin("x", None)]
    assert bundle.origins["tool:tool-x"] == [Origin("x", None)]


async def test_a_well_known_bundle_is_registered_once_something_includes_it(write: Write, tmp_path: Path) -> None:
    known = write("known/bundle.yaml", bundle_text("known")).parent
    write("known/behaviors/more.yaml", bundle_text("more"))
    source = commit(known)
    registry = BundleRegistry(tmp_path / "home", well_known={"known": source, "never": "git+file:///nowhere@main"})

    assert registry.list_registered() == []
    assert registry.find("known") == source
    bundle = await registry.load(str(write("x.yaml", bundle_text("x", "known:behaviors/more", "known"))))

    assert tools_of(bundle) == ["tool-more", "tool-known", "tool-x"]
    assert {"known", "x"} <= {*BundleRegistry(tmp_path / "home").list_registered()}


async def test_a_well_known_bundle_that_cannot_be_had_is_left_out_and_told(write: Write, tmp_path: Path) -> None:
    absent = f"git+{(tmp_path / 'nowhere').as_uri()}@main"
    registry = BundleRegistry(tmp_path / "home", well_known={"known": absent}, offline=True)

    bundle = await registry.load(str(write("x.yaml", bundle_text("x", "known:behaviors/more", "known"))))

    assert tools_of(bundle) == ["tool-x"]
    assert [text.partition(", which")[0].rpartition(" ")[2] for text in bundle.left_out] == [
        *("'known:behaviors/more'", "'known'")
    ]
    assert BundleRegistry(tmp_path / "home").list_registered() == ["x"]


async def test_a_name_of_ones_own_counts_before_a_well_known_one(write: Write, tmp_path: Path) -> None:
    registry = BundleRegistry(tmp_path / "home", well_known={"known": "git+file:///nowhere@main"}, offline=True)
    registry.register("known", str(write("mine.yaml", bundle_text("mine"))))

    assert tools_of(await registry.load(str(write("x.yaml", bundle_text("x", "known"))))) == ["tool-mine", "tool-x"]
