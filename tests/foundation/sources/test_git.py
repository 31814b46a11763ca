"""Git references: which commit they mean, and the one tree that each commit has."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.exceptions import BundleNotFoundError, RefResolutionError
from amplifier_foundation.sources import GitReference, Sources, hash_content


async def test_a_branch_resolves_to_the_tree_of_its_commit_without_git_files(repository: Any, sources: Sources) -> None:
    commit = repository.git("rev-parse", "HEAD")

    resolved = await sources.resolve(f"{repository.source}@main")

    assert (resolved.kind, resolved.rev, resolved.commit, resolved.mutable) == ("git", "main", commit, True)
    assert resolved.path == resolved.root == sources.cache_dir / "git" / commit
    assert sorted(path.name for path in resolved.path.iterdir()) == ["bundle.md", "modules"]
    assert (resolved.from_cache, resolved.stale, resolved.warnings) == (False, False, ())
    assert resolved.content_hash == hash_content(resolved.path)


async def test_the_cache_has_a_sidecar_for_the_tree_and_a_record_of_the_ref(repository: Any, sources: Sources) -> None:
    resolved = await sources.resolve(f"{repository.source}@main")

    git_dir = sources.cache_dir / "git"
    sidecar = json.loads((git_dir / f"{resolved.commit}.json").read_text())
    refs = json.loads((git_dir / "refs.json").read_text())
    assert (sidecar["url"], sidecar["revs"]) == (repository.path.as_uri(), ["main"])
    assert sidecar["bytes"] == len("hello\n") + len("[project]\n")
    assert sidecar["fetched_at"].endswith("Z")
    assert refs[repository.path.as_uri()]["main"]["commit"] == resolved.commit
    assert refs[repository.path.as_uri()]["main"]["checked_at"].endswith("Z")
    assert sorted(path.name for path in git_dir.iterdir()) == sorted(
        [str(resolved.commit), f"{resolved.commit}.json", "refs.json"]
    )


async def test_a_reference_without_ref_means_the_default_branch_and_is_warned_about(
    repository: Any, sources: Sources
) -> None:
    repository.git("branch", "--move", "main", "trunk")

    resolved = await sources.resolve(repository.source)

    assert (resolved.rev, resolved.mutable, resolved.warnings) == (None, True, ("unpinned-ref",))
    assert resolved.commit == repository.git("rev-parse", "trunk")


@pytest.mark.parametrize("annotated", [True, False])
async def test_a_tag_means_the_commit_it_points_to_and_does_not_move(
    repository: Any, sources: Sources, annotated: bool
) -> None:
    repository.git("tag", *(["-a", "-m", "One"] if annotated else []), "v1")

    resolved = await sources.resolve(f"{repository.source}@v1")

    assert (resolved.commit, resolved.mutable) == (repository.git("rev-parse", "v1^{commit}"), False)


async def test_a_branch_comes_before_a_tag_of_the_same_name(repository: Any, sources: Sources) -> None:
    repository.git("tag", "same")
    repository.git("checkout", "--quiet", "-b", "same")
    commit = repository.commit({"new.txt": "new"})

    resolved = await sources.resolve(f"{repository.source}@same")

    assert (resolved.commit, resolved.mutable) == (commit, True)


async def test_a_full_commit_needs_no_question(
    repository: Any, sources: Sources, git_calls: Callable[[], list[str]]
) -> None:
    first = repository.git("rev-parse", "HEAD")
    repository.commit({"bundle.md": "later"})

    resolved = await sources.resolve(f"{repository.source}@{first}")

    assert (resolved.commit, resolved.mutable, (resolved.path / "bundle.md").read_text()) == (first, False, "hello\n")
    assert not [call for call in git_calls() if "ls-remote" in call]


async def test_an_abbreviated_commit_is_found_and_remembered(
    repository: Any, sources: Sources, git_calls: Callable[[], list[str]]
) -> None:
    first = repository.git("rev-parse", "HEAD")
    repository.commit({"bundle.md": "later"})
    source = f"{repository.source}@{first[:9]}#modules/tool-x"

    resolved = await sources.resolve(source)
    calls = len(git_calls())
    again = await sources.resolve(source, refresh=True)

    assert (resolved.commit, resolved.mutable, again.commit) == (first, False, first)
    assert len(git_calls()) == calls


@pytest.mark.parametrize(
    "fragment", ["subdirectory=modules/tool-x", "modules/tool-x", "egg=x&subdirectory=modules/tool-x"]
)
async def test_a_fragment_names_a_directory_of_the_one_tree(repository: Any, sources: Sources, fragment: str) -> None:
    resolved = await sources.resolve(f"{repository.source}@main#{fragment}")

    assert resolved.path == resolved.root / "modules" / "tool-x"
    assert (resolved.subpath, resolved.content_hash) == ("modules/tool-x", hash_content(resolved.path))


async def test_a_fragment_may_name_a_single_file(repository: Any, sources: Sources) -> None:
    resolved = await sources.resolve(f"{repository.source}@main#bundle.md")

    assert resolved.path.read_text() == "hello\n"
    assert resolved.content_hash == hash_content(resolved.path)


async def test_directories_whose_names_differ_only_in_a_separator_stay_apart(
    new_repository: Callable[..., Any], sources: Sources
) -> None:
    repository = new_repository(files={"a/b/x": "slash", "a_b/x": "underscore"})

    slash = await sources.resolve(f"{repository.source}@main#a/b")
    underscore = await sources.resolve(f"{repository.source}@main#a_b")

    assert ((slash.path / "x").read_text(), (underscore.path / "x").read_text()) == ("slash", "underscore")
    assert slash.root == underscore.root
    assert underscore.from_cache


async def test_a_ref_may_contain_slashes(repository: Any, sources: Sources) -> None:
    repository.git("checkout", "--quiet", "-b", "feature/deep/one")
    commit = repository.commit({"f": "f"})

    resolved = await sources.resolve(f"{repository.source}@feature/deep/one")

    assert (resolved.commit, resolved.rev, resolved.subpath) == (commit, "feature/deep/one", None)


async def test_the_older_form_has_its_path_behind_the_ref(
    repository: Any, sources: Sources, git_calls: Callable[[], list[str]]
) -> None:
    repository.git("checkout", "--quiet", "-b", "release/2")
    source = f"{repository.source}@release/2/modules/tool-x/pyproject.toml"

    resolved = await sources.resolve(source)
    calls = len(git_calls())
    again = await sources.resolve(source)

    assert (resolved.rev, resolved.subpath) == ("release/2", "modules/tool-x/pyproject.toml")
    assert resolved.path.is_file()
    assert (again.path, again.rev, len(git_calls())) == (resolved.path, "release/2", calls)


async def test_the_older_form_works_behind_a_commit_too(repository: Any, sources: Sources) -> None:
    commit = repository.git("rev-parse", "HEAD")

    resolved = await sources.resolve(f"{repository.source}@{commit}/modules/tool-x")

    assert (resolved.commit, resolved.subpath) == (commit, "modules/tool-x")


async def test_a_path_in_both_forms_is_refused(repository: Any, sources: Sources) -> None:
    with pytest.raises(RefResolutionError, match="names a path twice") as caught:
        await sources.resolve(f"{repository.source}@main/modules#bundle.md")

    assert caught.value.reason == "syntax"


async def test_a_ref_that_is_not_there_is_reported_with_the_nearest(repository: Any, sources: Sources) -> None:
    repository.git("tag", "v2.0")
    source = f"{repository.source}@v2"

    with pytest.raises(BundleNotFoundError, match=r"no ref 'v2' \(nearest: v2.0\)") as caught:
        await sources.resolve(source)

    assert isinstance(caught.value, RefResolutionError)
    assert (caught.value.ref, caught.value.reason) == (source, "not-found")


async def test_a_repository_that_is_not_there_is_reported(sources: Sources, tmp_path: Path) -> None:
    with pytest.raises(RefResolutionError, match="Failed to clone ") as caught:
        await sources.resolve(f"git+{(tmp_path / 'nowhere').as_uri()}@main")

    assert caught.value.reason == "not-found"


async def test_a_commit_that_is_not_there_is_reported(repository: Any, sources: Sources) -> None:
    with pytest.raises(RefResolutionError, match="Failed to clone ") as caught:
        await sources.resolve(f"{repository.source}@{'ab' * 20}")

    assert caught.value.reason == "not-found"
    assert not [path for path in (sources.cache_dir / "git").iterdir() if path.name.startswith((".", "ab"))]


async def test_an_empty_repository_is_reported(tmp_path: Path, repository: Any, sources: Sources) -> None:
    repository.git("init", "--quiet", "--bare", str(tmp_path / "empty"))

    with pytest.raises(RefResolutionError, match="no commit yet"):
        await sources.resolve(f"git+{(tmp_path / 'empty').as_uri()}")


async def test_a_warm_reference_starts_nothing_and_writes_nothing(
    repository: Any, sources: Sources, git_calls: Callable[[], list[str]]
) -> None:
    repository.git("tag", "v1")
    texts = [f"{repository.source}{end}" for end in ("@main", "@v1", "", "@main#modules/tool-x")]
    for text in texts:
        await sources.resolve(text)
    before, calls = _state(sources.cache_dir), len(git_calls())

    again = [await sources.resolve(text) for text in texts]
    fresh = [await Sources(sources.cache_dir).resolve(text) for text in texts]

    assert all(resolved.from_cache for resolved in again + fresh)
    assert (_state(sources.cache_dir), len(git_calls())) == (before, calls)


async def test_a_moved_branch_is_noticed_on_refresh_only_and_the_earlier_tree_stays(
    repository: Any, sources: Sources
) -> None:
    old = await sources.resolve(f"{repository.source}@main")
    commit = repository.commit({"bundle.md": "changed"})

    same = await sources.resolve(f"{repository.source}@main")
    new = await sources.resolve(f"{repository.source}@main", refresh=True)

    assert (same.commit, new.commit, new.from_cache) == (old.commit, commit, False)
    assert ((old.path / "bundle.md").read_text(), (new.path / "bundle.md").read_text()) == ("hello\n", "changed")


async def test_a_moved_tag_is_noticed_on_refresh_only(repository: Any, sources: Sources) -> None:
    repository.git("tag", "v1")
    await sources.resolve(f"{repository.source}@v1")
    commit = repository.commit({"bundle.md": "changed"})
    repository.git("tag", "--force", "v1")

    same = await sources.resolve(f"{repository.source}@v1")
    new = await sources.resolve(f"{repository.source}@v1", refresh=True)

    assert (same.commit == commit, new.commit) == (False, commit)


async def test_a_subpath_that_was_added_to_a_branch_appears_without_refresh(repository: Any, sources: Sources) -> None:
    await sources.resolve(f"{repository.source}@main")
    repository.commit({"added/file": "x"})

    resolved = await sources.resolve(f"{repository.source}@main#added")

    assert (resolved.path / "file").read_text() == "x"


async def test_a_subpath_that_is_nowhere_is_asked_for_once(
    repository: Any, sources: Sources, git_calls: Callable[[], list[str]]
) -> None:
    await sources.resolve(f"{repository.source}@main")
    calls = len(git_calls())

    with pytest.raises(RefResolutionError, match="Subpath not found") as caught:
        await sources.resolve(f"{repository.source}@main#nowhere")

    assert (caught.value.reason, len(git_calls()) - calls) == ("subpath-missing", 1)
    with pytest.raises(RefResolutionError, match="Subpath not found"):
        await Sources(sources.cache_dir).resolve(f"{repository.source}@main#nowhere")
    assert len(git_calls()) - calls == 1


async def test_a_tree_without_sidecar_is_discarded_and_fetched_again(repository: Any, sources: Sources) -> None:
    resolved = await sources.resolve(f"{repository.source}@main")
    (sources.cache_dir / "git" / f"{resolved.commit}.json").unlink()
    (resolved.path / "half-written").touch()

    again = await sources.resolve(f"{repository.source}@main")

    assert (again.path, again.from_cache) == (resolved.path, False)
    assert not (again.path / "half-written").exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x": 1}'])
async def test_a_broken_record_of_refs_counts_as_missing(repository: Any, sources: Sources, content: str) -> None:
    first = await sources.resolve(f"{repository.source}@main")
    (sources.cache_dir / "git" / "refs.json").write_text(content)

    again = await sources.resolve(f"{repository.source}@main")

    assert (again.commit, again.from_cache) == (first.commit, True)


async def test_spellings_of_one_repository_share_a_record(
    new_repository: Callable[..., Any], sources: Sources, git_calls: Callable[[], list[str]]
) -> None:
    repository = new_repository("x.git")
    await sources.resolve(f"{repository.source}@main")
    calls = len(git_calls())

    await sources.resolve(f"{repository.source}/@main")

    assert len(git_calls()) == calls
    assert GitReference("https://u:p@Host/o/r.git/").repository == GitReference("https://host/o/r").repository


async def test_two_refs_of_one_commit_share_a_tree_that_names_both(repository: Any, sources: Sources) -> None:
    repository.git("tag", "v1")

    branch = await sources.resolve(f"{repository.source}@main")
    tag = await sources.resolve(f"{repository.source}@v1")

    sidecar = json.loads((sources.cache_dir / "git" / f"{tag.commit}.json").read_text())
    assert (tag.path, tag.from_cache, sidecar["revs"]) == (branch.path, True, ["main", "v1"])


async def test_a_server_that_refuses_single_commits_is_fetched_whole(
    repository: Any, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = repository.git("rev-parse", "HEAD")
    repository.commit({"bundle.md": "later"})
    for name, value in (("COUNT", "1"), ("KEY_0", "protocol.version"), ("VALUE_0", "0")):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)

    resolved = await sources.resolve(f"{repository.source}@{first}")

    assert (resolved.path / "bundle.md").read_text() == "hello\n"


async def test_a_tree_has_the_bytes_of_its_commit_whatever_attributes_say(
    new_repository: Callable[..., Any], sources: Sources
) -> None:
    repository = new_repository(files={"run.sh": "#!/bin/sh\n", "a.txt": "one\ntwo\n"})
    (repository.path / "run.sh").chmod(0o755)
    repository.commit(
        {".gitattributes": "*.txt eol=crlf\n*.bin filter=lfs diff=lfs merge=lfs -text\n", "b.bin": b"\0p"}
    )

    resolved = await sources.resolve(repository.source)

    assert (resolved.path / "a.txt").read_bytes() == b"one\ntwo\n"
    assert (resolved.path / "b.bin").read_bytes() == b"\0p"
    assert (resolved.path / "run.sh").stat().st_mode & 0o100


async def test_names_of_any_kind_survive(new_repository: Callable[..., Any], sources: Sources) -> None:
    repository = new_repository("with space", files={"ümlaut/a b#c%20.md": "x"})

    resolved = await sources.resolve(f"{repository.source.replace('%20', ' ')}@main#%C3%BCmlaut/a b%23c%2520.md")

    assert resolved.path.read_text() == "x"


def _state(cache_dir: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_mtime_ns for path in sorted(cache_dir.rglob("*"))}
