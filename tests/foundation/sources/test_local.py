"""Paths of this machine and names of installed packages: used in place."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

import amplifier_core
from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources import FileReference, Sources, hash_content


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work" / "my bundle"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.md").write_text("a")
    (folder / "with#mark.md").write_text("mark")
    return folder


async def test_a_path_is_used_in_place(sources: Sources, folder: Path) -> None:
    resolved = await sources.resolve(str(folder))

    assert (resolved.kind, resolved.path, resolved.root) == ("local", folder, folder)
    assert (resolved.mutable, resolved.from_cache, resolved.commit) == (True, False, None)
    assert resolved.content_hash == hash_content(folder)
    assert not sources.cache_dir.exists()


async def test_a_relative_path_counts_from_the_file_that_names_it(
    sources: Sources, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    resolved = await sources.resolve("./a.md", base_dir=folder / "sub")

    assert resolved.path == folder / "sub" / "a.md"
    with pytest.raises(RefResolutionError, match="does not exist"):
        await sources.resolve("./a.md")


async def test_a_tilde_is_the_home_directory(sources: Sources, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))

    assert (await sources.resolve("~/sub/a.md")).path == folder / "sub" / "a.md"


@pytest.mark.parametrize(
    ("text", "subpath"),
    [
        ("{folder}#subdirectory=sub/a.md", "sub/a.md"),
        ("{folder}#sub", "sub"),
        ("file://{folder}#sub", "sub"),
        ("file://{quoted}#sub/a.md", "sub/a.md"),
        ("file://{quoted}", None),
        ("{folder}/with#mark.md", None),
        ("file://{folder}/with%23mark.md", None),
    ],
)
async def test_a_path_is_read_literally_first_then_with_fragment_and_decoded(
    sources: Sources, folder: Path, text: str, subpath: str | None
) -> None:
    written = text.format(folder=folder, quoted=str(folder).replace(" ", "%20"))

    resolved = await sources.resolve(written)

    assert (resolved.ref, resolved.subpath, resolved.path.exists()) == (written, subpath, True)
    assert resolved.path.is_relative_to(folder)


@pytest.mark.parametrize("text", ["./nowhere", "./nowhere#x", "file://./nowhere%20"])
async def test_a_path_that_is_not_there_is_reported(sources: Sources, folder: Path, text: str) -> None:
    with pytest.raises(RefResolutionError, match=r"File not found: .* does not exist") as caught:
        await sources.resolve(text, base_dir=folder)

    assert (caught.value.reason, caught.value.ref) == ("not-found", text)


@pytest.mark.parametrize(
    ("end", "reason"), [("#nowhere", "subpath-missing"), ("#../x", "unsafe-path"), ("#", "syntax")]
)
async def test_a_subpath_that_is_not_there_is_reported(sources: Sources, folder: Path, end: str, reason: str) -> None:
    with pytest.raises(RefResolutionError, match="Subpath not found") as caught:
        await sources.resolve(f"{folder}{end}")

    assert caught.value.reason == reason


async def test_a_subpath_that_leaves_by_a_link_is_refused(sources: Sources, folder: Path, tmp_path: Path) -> None:
    (folder / "out").symlink_to(tmp_path)

    with pytest.raises(RefResolutionError, match="Subpath not found") as caught:
        await sources.resolve(f"file://{folder}#out")

    assert caught.value.reason == "unsafe-path"


class TestRestricted:
    """With allowed roots nothing local outside of them is used."""

    @pytest.mark.parametrize("text", ["{outside}", "file://{outside}", "./../outside", "git+file://{outside}@main"])
    async def test_what_is_outside_is_refused(self, cache_dir: Path, tmp_path: Path, text: str) -> None:
        inside, outside = tmp_path / "inside", tmp_path / "outside"
        inside.mkdir()
        outside.mkdir()

        with pytest.raises(RefResolutionError, match="outside the allowed directories") as caught:
            await Sources(cache_dir, allowed_roots=[inside]).resolve(text.format(outside=outside), base_dir=inside)

        assert caught.value.reason == "unsafe-path"

    async def test_an_archive_outside_is_refused(self, cache_dir: Path, tmp_path: Path) -> None:
        with pytest.raises(RefResolutionError) as caught:
            await Sources(cache_dir, allowed_roots=[tmp_path / "inside"]).resolve(f"zip+file://{tmp_path}/x.zip")

        assert caught.value.reason == "unsafe-path"

    async def test_a_link_that_leads_outside_is_refused(self, cache_dir: Path, tmp_path: Path) -> None:
        inside = tmp_path / "inside"
        inside.mkdir()
        (inside / "link").symlink_to("/etc")

        with pytest.raises(RefResolutionError) as caught:
            await Sources(cache_dir, allowed_roots=[inside]).resolve(str(inside / "link"))

        assert caught.value.reason == "unsafe-path"

    async def test_what_is_inside_is_used(self, cache_dir: Path, folder: Path, repository: Any) -> None:
        sources = Sources(cache_dir, allowed_roots=[folder.parent, repository.path])

        assert (await sources.resolve(str(folder))).path == folder
        assert (await sources.resolve(repository.source)).path.is_dir()


async def test_fetched_content_cannot_name_paths_outside_of_itself(repository: Any, sources: Sources) -> None:
    fetched = await sources.resolve(f"{repository.source}@main#modules")

    assert (await sources.resolve("../bundle.md", base_dir=fetched.path)).path == fetched.root / "bundle.md"
    with pytest.raises(RefResolutionError, match="leads out of the source that names it") as caught:
        await sources.resolve("../../refs.json", base_dir=fetched.path)
    assert caught.value.reason == "unsafe-path"


@pytest.mark.parametrize("name", ["amplifier_core", "amplifier-core", "hypothesis", "PyYAML"])
async def test_a_name_is_an_installed_package(sources: Sources, name: str) -> None:
    resolved = await sources.resolve(name)

    assert (resolved.kind, (resolved.path / "__init__.py").is_file()) == ("installed", True)


async def test_a_distribution_is_its_public_package(sources: Sources) -> None:
    assert (await sources.resolve("PyYAML")).path == Path(yaml.__file__).parent


async def test_a_name_may_have_a_path_in_the_package(sources: Sources) -> None:
    resolved = await sources.resolve("amplifier_core/utils")

    package = Path(amplifier_core.__file__).parent
    assert (resolved.path, resolved.root) == (package / "utils", package)


async def test_a_name_is_never_a_path_and_the_message_suggests_one(sources: Sources, folder: Path) -> None:
    with pytest.raises(RefResolutionError, match=r"No handler for URI: sub(.|\n)*write './sub'") as caught:
        await sources.resolve("sub", base_dir=folder)

    assert caught.value.reason == "not-found"


async def test_a_name_that_is_nothing_is_reported_without_suggestion(sources: Sources, folder: Path) -> None:
    with pytest.raises(RefResolutionError, match="neither a registered bundle nor an installed package") as caught:
        await sources.resolve("no-such-thing", base_dir=folder)

    assert "./" not in str(caught.value)


async def test_a_value_resolves_like_its_text(sources: Sources, folder: Path) -> None:
    assert (await sources.resolve(FileReference(str(folder)))).path == folder


class TestHash:
    """The same bytes under the same names have the same hash."""

    def test_of_a_tree_depends_on_names_bytes_and_the_right_to_execute(self, folder: Path) -> None:
        hashes = [hash_content(folder)]
        (folder / "sub" / "a.md").write_text("b")
        hashes.append(hash_content(folder))
        (folder / "sub" / "a.md").chmod(0o755)
        hashes.append(hash_content(folder))
        (folder / "sub" / "a.md").rename(folder / "sub" / "b.md")
        hashes.append(hash_content(folder))

        assert len(set(hashes)) == 4

    def test_is_the_one_that_is_defined(self, tmp_path: Path) -> None:
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "c").write_bytes(b"")
        (tmp_path / "a").write_bytes(b"x")
        (tmp_path / "a").chmod(0o700)

        lines = [
            f"{name}\0{bit}\0{hashlib.sha256(data).hexdigest()}\n"
            for name, bit, data in (("a", 1, b"x"), ("b/c", 0, b""))
        ]
        assert hash_content(tmp_path) == f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"

    @pytest.mark.parametrize("name", [".git/x", "__pycache__/x", "a.pyc", ".venv/x", "node_modules/x", ".DS_Store"])
    def test_leaves_out_what_tools_leave_behind(self, folder: Path, name: str) -> None:
        before = hash_content(folder)

        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")

        assert hash_content(folder) == before

    def test_refuses_links_that_leave_the_tree(self, folder: Path) -> None:
        (folder / "sub" / "link").symlink_to("../../../x")

        with pytest.raises(RefResolutionError, match="'sub/link' leads out") as caught:
            hash_content(folder)

        assert caught.value.reason == "unsafe-path"

    def test_follows_links_to_files_and_ends_in_spite_of_circles(self, folder: Path) -> None:
        (folder / "link").symlink_to("sub/a.md")
        (folder / "sub" / "up").symlink_to("..")
        before = hash_content(folder)

        (folder / "sub" / "a.md").write_text("changed")

        assert hash_content(folder) != before

    def test_of_a_file_is_that_of_its_bytes(self, folder: Path) -> None:
        digest = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
        assert hash_content(folder / "sub" / "a.md") == f"sha256:{digest}"

    def test_of_nothing_is_an_error(self, folder: Path) -> None:
        with pytest.raises(RefResolutionError, match="does not exist"):
            hash_content(folder / "nothing")
