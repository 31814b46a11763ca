"""The resolver and its handlers, as bundles and existing callers use them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation import sources as package
from amplifier_foundation.exceptions import BundleNotFoundError, RefResolutionError
from amplifier_foundation.paths.resolution import ParsedURI, ResolvedSource, parse_uri
from amplifier_foundation.sources import (
    GitSourceHandler,
    SimpleSourceResolver,
    Sources,
    SourceStatus,
    hash_content,
    resolve,
)
from amplifier_foundation.sources.file import FileSourceHandler


@pytest.fixture
def resolver(cache_dir: Path, tmp_path: Path) -> SimpleSourceResolver:
    return SimpleSourceResolver(cache_dir, tmp_path)


async def test_every_kind_of_source_has_a_path_and_a_root(
    resolver: SimpleSourceResolver, repository: Any, server: Any, tmp_path: Path
) -> None:
    server.answers["/a.md"] = (200, {}, b"a")
    (tmp_path / "x.md").write_text("x")

    git = await resolver.resolve(f"{repository.source}@main#subdirectory=modules")
    url = await resolver.resolve(f"{server.url}/a.md")
    file = await resolver.resolve("./x.md")

    assert (git.active_path, git.is_subdirectory) == (git.source_root / "modules", True)
    assert (url.active_path.name, url.is_subdirectory) == ("a.md", False)
    assert (file.active_path, file.source_root) == (tmp_path / "x.md", tmp_path)


async def test_the_defaults_are_the_home_and_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Any
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    resolver = SimpleSourceResolver()
    resolved = await resolve(f"{repository.source}@main")

    assert (resolver.cache_dir, resolver.base_path) == (tmp_path / "home" / "cache", tmp_path)
    assert resolved.root.parent == tmp_path / "home" / "cache" / "git"


async def test_handlers_are_asked_in_order_and_added_ones_first(resolver: SimpleSourceResolver, tmp_path: Path) -> None:
    class Mine:
        def can_handle(self, parsed: ParsedURI) -> bool:
            return parsed.scheme == "mine"

        async def resolve(self, parsed: ParsedURI, cache_dir: Path) -> ResolvedSource:
            return ResolvedSource(tmp_path / parsed.host, cache_dir)

    names = [type(handler).__name__ for handler in resolver._handlers]
    resolver.add_handler(Mine())

    assert names == [f"{kind}SourceHandler" for kind in ("File", "Git", "Zip", "Http", "Fsspec")]
    assert await resolver.resolve("mine://x") == ResolvedSource(tmp_path / "x", resolver.cache_dir)


@pytest.mark.parametrize("uri", ["no-such-package", "ns:path", "", "nonsense://x"])
async def test_what_nobody_knows_is_not_found(resolver: SimpleSourceResolver, uri: str) -> None:
    with pytest.raises(BundleNotFoundError, match="No handler for URI: ") as caught:
        await resolver.resolve(uri)

    assert isinstance(caught.value, RefResolutionError)
    assert caught.value.ref == uri


@pytest.mark.parametrize("subpath", ["../x", "/etc", "nowhere"])
async def test_a_subpath_that_is_not_in_the_source_is_not_found(
    resolver: SimpleSourceResolver, repository: Any, subpath: str
) -> None:
    with pytest.raises(BundleNotFoundError, match="Subpath not found"):
        await resolver.resolve(f"{repository.source}@main#subdirectory={subpath}")


async def test_an_installed_package_is_its_directory(resolver: SimpleSourceResolver) -> None:
    resolved = await resolver.resolve("amplifier-core")

    assert resolved.active_path == resolved.source_root
    assert (resolved.source_root / "coordinator.py").is_file()


async def test_local_paths_can_be_restricted(cache_dir: Path, tmp_path: Path) -> None:
    resolver = SimpleSourceResolver(cache_dir, tmp_path, allowed_roots=[tmp_path / "inside"])

    with pytest.raises(RefResolutionError) as caught:
        await resolver.resolve("/etc")

    assert caught.value.reason == "unsafe-path"


async def test_a_source_layer_of_ones_own_is_used(cache_dir: Path, repository: Any) -> None:
    resolver = SimpleSourceResolver(sources=Sources(cache_dir, allowed_roots=[]))

    assert resolver.cache_dir == cache_dir
    with pytest.raises(RefResolutionError, match="outside the allowed directories"):
        await resolver.resolve(repository.source)


class TestRootOfAPath:
    """The source root of a local path is the bundle that it belongs to."""

    @pytest.mark.parametrize("marker", ["bundle.md", "bundle.yaml"])
    async def test_is_the_nearest_directory_with_a_bundle_file(
        self, tmp_path: Path, cache_dir: Path, marker: str
    ) -> None:
        agent = tmp_path / "a" / "agents" / "x.md"
        agent.parent.mkdir(parents=True)
        agent.touch()
        (tmp_path / "a" / marker).touch()

        resolved = await FileSourceHandler(tmp_path).resolve(parse_uri("./a/agents/x.md"), cache_dir)

        assert (resolved.active_path, resolved.source_root) == (agent, tmp_path / "a")

    @pytest.mark.parametrize("home", ["", "zzz", "aaa"])
    async def test_is_searched_no_higher_than_the_home_and_outside_of_it_up_to_the_top(
        self, tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch, home: str
    ) -> None:
        (tmp_path / "bundle.md").touch()
        for folder in ("home/x", "mmm/x", "zzz", "aaa"):
            (tmp_path / folder).mkdir(parents=True)
        monkeypatch.setenv("HOME", str(tmp_path / (home or "home")))
        handler = FileSourceHandler(tmp_path)

        under = await handler.resolve(parse_uri(f"./{home or 'home/x'}"), cache_dir)
        outside = await handler.resolve(parse_uri("./mmm/x"), cache_dir)

        assert under.source_root == under.active_path
        assert outside.source_root == tmp_path

    async def test_is_the_tree_of_a_cache_entry(self, repository: Any, resolver: SimpleSourceResolver) -> None:
        fetched = await resolver.resolve(f"{repository.source}@main#modules/tool-x")

        again = await resolver.resolve(str(fetched.active_path))

        assert again.source_root == fetched.source_root

    async def test_is_the_path_before_a_fragment(self, tmp_path: Path, resolver: SimpleSourceResolver) -> None:
        (tmp_path / "dir" / "behaviors").mkdir(parents=True)
        (tmp_path / "dir" / "behaviors" / "x.yaml").touch()

        resolved = await resolver.resolve(f"{tmp_path}/dir#subdirectory=behaviors/x.yaml")

        assert (resolved.active_path.name, resolved.source_root) == ("x.yaml", tmp_path / "dir")

    async def test_of_a_missing_path_is_an_error(self, cache_dir: Path) -> None:
        with pytest.raises(BundleNotFoundError, match="File not found: "):
            await FileSourceHandler().resolve(parse_uri("/no/such/path"), cache_dir)

    async def test_may_start_at_the_home(
        self, tmp_path: Path, resolver: SimpleSourceResolver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / "x").mkdir()

        assert (await resolver.resolve("~/x")).active_path == tmp_path / "x"


class TestStatus:
    """Whether there is something newer, without changing anything."""

    async def _status(self, repository: Any, cache_dir: Path, end: str = "@main") -> SourceStatus:
        return await GitSourceHandler().get_status(parse_uri(f"{repository.source}{end}"), cache_dir)

    async def test_a_source_that_is_not_cached_has_an_update(self, repository: Any, cache_dir: Path) -> None:
        status = await self._status(repository, cache_dir, "@main#subdirectory=modules")

        commit = repository.git("rev-parse", "HEAD")
        assert (status.source_uri, status.is_cached, status.has_update) == (f"{repository.source}@main", False, True)
        assert (status.cached_ref, status.remote_ref, status.remote_commit) == ("main", "main", commit)
        assert status.summary == f"Not cached (remote: {commit[:8]})"
        assert not (cache_dir / "git").exists()

    async def test_a_source_is_up_to_date_until_its_branch_moves(
        self, repository: Any, cache_dir: Path, sources: Sources
    ) -> None:
        resolved = await sources.resolve(f"{repository.source}@main")
        current = await self._status(repository, cache_dir)
        commit = repository.commit({"a": "a"})
        outdated = await self._status(repository, cache_dir)
        handler = GitSourceHandler()
        updated = await handler.update(parse_uri(f"{repository.source}@main"), cache_dir)
        again = await self._status(repository, cache_dir)

        assert (current.has_update, current.cached_commit, current.is_cached) == (False, resolved.commit, True)
        assert current.summary.startswith("Up to date (")
        assert current.cached_at is not None
        assert (outdated.has_update, outdated.remote_commit) == (True, commit)
        assert outdated.summary.startswith("Update available (")
        assert (updated.active_path.name, again.has_update) == (commit, False)
        assert resolved.path.is_dir()

    @pytest.mark.parametrize("end", ["@v1.0", f"@{'AB' * 20}"])
    async def test_a_pinned_source_is_never_asked_about(self, tmp_path: Path, cache_dir: Path, end: str) -> None:
        uri = f"git+{(tmp_path / 'nowhere').as_uri()}{end}"

        status = await GitSourceHandler().get_status(parse_uri(uri), cache_dir)

        assert (status.is_pinned, status.has_update, status.error) == (True, False, None)
        assert status.summary.startswith("Pinned to")

    @pytest.mark.parametrize("end", ["@nowhere", "@main"])
    async def test_a_ref_that_cannot_be_found_is_an_unknown_update(
        self, repository: Any, cache_dir: Path, end: str
    ) -> None:
        repository.git("branch", "--move", "main", "trunk")

        status = await self._status(repository, cache_dir, end)

        assert (status.has_update, "Could not find ref" in str(status.error)) == (None, True)
        assert status.summary.startswith("Error")

    @pytest.mark.parametrize(
        ("ref", "pinned"), [(None, False), ("", False), ("main", False), ("v", False), ("v1", True), ("ab" * 20, True)]
    )
    def test_a_version_or_a_commit_is_pinned(self, ref: str | None, pinned: bool) -> None:
        assert SourceStatus("x", True, cached_ref=ref).is_pinned is pinned


def test_importing_the_package_brings_no_large_library() -> None:
    code = "import sys, amplifier_foundation.sources; print({'httpx2', 'fsspec', 'filelock'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"


def test_the_public_names_exist() -> None:
    assert all(hasattr(package, name) for name in package.__all__)
    assert package.hash_content is hash_content


async def test_a_path_without_scheme_is_a_file_to_the_file_handler(tmp_path: Path) -> None:
    parsed = ParsedURI("", "", str(tmp_path), "", "")

    assert (await FileSourceHandler().resolve(parsed, tmp_path / "cache")).active_path == tmp_path
