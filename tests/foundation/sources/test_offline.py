"""Without a network: what the cache has is used, and what it lacks is named."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources import Limits, Sources


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slow_remote: Any) -> Any:
    """Call it to make the remote unreachable, in the words of ssh."""

    def vanish() -> None:
        script = tmp_path / "unreachable"
        script.write_text(
            "#!/bin/sh\necho 'ssh: connect to host host.invalid port 22: Connection refused' >&2\nexit 255\n"
        )
        script.chmod(0o755)
        monkeypatch.setenv("GIT_SSH_COMMAND", str(script))

    return vanish


async def test_forced_offline_uses_the_last_known_commit_of_a_branch_and_says_so(
    slow_remote: Any, sources: Sources, cache_dir: Path
) -> None:
    known = await sources.resolve(f"{slow_remote.source}@main")
    connections = len(slow_remote.connections())
    offline = Sources(cache_dir, offline=True)

    ordinary = await offline.resolve(f"{slow_remote.source}@main")
    refreshed = await offline.resolve(f"{slow_remote.source}@main", refresh=True)

    assert (ordinary.commit, ordinary.stale, ordinary.warnings) == (known.commit, False, ())
    assert (refreshed.commit, refreshed.stale, refreshed.warnings) == (known.commit, True, ("offline-stale",))
    assert len(slow_remote.connections()) == connections


async def test_what_cannot_move_is_not_stale(slow_remote: Any, sources: Sources, cache_dir: Path) -> None:
    slow_remote.repository.git("tag", "v1")
    commit = slow_remote.repository.git("rev-parse", "HEAD")
    for ref in ("v1", commit):
        await sources.resolve(f"{slow_remote.source}@{ref}")

    for ref in ("v1", commit):
        resolved = await Sources(cache_dir, offline=True).resolve(f"{slow_remote.source}@{ref}", refresh=True)
        assert (resolved.commit, resolved.stale, resolved.warnings) == (commit, False, ())


@pytest.mark.parametrize("ref", ["@main", "@v1", "", f"@{'ab' * 20}"])
async def test_what_is_not_cached_is_named_with_the_command_that_fetches_it(
    cache_dir: Path, slow_remote: Any, ref: str
) -> None:
    source = f"{slow_remote.source}{ref}"

    with pytest.raises(RefResolutionError, match=r"offline, and .* is not in the cache") as caught:
        await Sources(cache_dir, offline=True).resolve(source)

    assert (caught.value.reason, caught.value.ref, slow_remote.connections()) == ("offline", source, [])
    assert f"fetch it while online: amplifier source fetch {source}" in str(caught.value)


async def test_the_environment_forces_it_at_every_call(
    slow_remote: Any, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIERD_OFFLINE", "1")
    with pytest.raises(RefResolutionError):
        await sources.resolve(f"{slow_remote.source}@main")

    monkeypatch.setenv("AMPLIFIERD_OFFLINE", "0")
    assert (await sources.resolve(f"{slow_remote.source}@main")).path.is_dir()


async def test_local_sources_work_offline(repository: Any, cache_dir: Path, tmp_path: Path) -> None:
    offline = Sources(cache_dir, offline=True)

    assert (await offline.resolve(f"{repository.source}@main")).commit
    assert (await offline.resolve(str(tmp_path))).path == tmp_path


async def test_a_remote_that_cannot_be_reached_counts_as_offline(slow_remote: Any, sources: Sources, gone: Any) -> None:
    known = await sources.resolve(f"{slow_remote.source}@main")
    gone()

    resolved = await sources.resolve(f"{slow_remote.source}@main", refresh=True)

    assert (resolved.commit, resolved.stale, resolved.warnings) == (known.commit, True, ("offline-stale",))


async def test_a_remote_that_cannot_be_reached_and_is_not_cached_is_an_error(
    slow_remote: Any, sources: Sources, gone: Any
) -> None:
    gone()

    with pytest.raises(RefResolutionError, match=r"Failed to clone .*Connection refused") as caught:
        await sources.resolve(f"{slow_remote.source}@main")

    assert (caught.value.reason, caught.value.ref) == ("offline", f"{slow_remote.source}@main")
    assert f"fetch it while online: amplifier source fetch {slow_remote.source}@main" in str(caught.value)


async def test_a_remote_that_does_not_answer_in_time_counts_as_offline(
    slow_remote: Any, cache_dir: Path, limits: Limits, started: Any
) -> None:
    sources = Sources(cache_dir, limits=replace(limits, ask_timeout_s=0.3))
    await Sources(cache_dir).resolve(f"{slow_remote.source}@main")
    slow_remote.close()

    resolved = await sources.resolve(f"{slow_remote.source}@main", refresh=True)

    started.wait_for(0)
    assert (resolved.stale, resolved.warnings) == (True, ("offline-stale",))


async def test_a_fetch_that_fails_does_not_lose_what_was_known(
    slow_remote: Any, sources: Sources, cache_dir: Path, limits: Limits
) -> None:
    known = await sources.resolve(f"{slow_remote.source}@main")
    slow_remote.repository.commit({"bundle.md": "changed"})
    hasty = Sources(cache_dir, limits=replace(limits, fetch_timeout_s=0.2))
    slow_remote.close(after=1)  # the one that asks what there is

    hurried = await hasty.resolve(f"{slow_remote.source}@main", refresh=True)

    assert (hurried.commit, hurried.stale) == (known.commit, True)
    assert (await Sources(cache_dir, offline=True).resolve(f"{slow_remote.source}@main")).commit == known.commit


async def test_a_refused_login_is_no_lack_of_network(server: Any, sources: Sources) -> None:
    server.answers["/r/info/refs?service=git-upload-pack"] = (401, {"WWW-Authenticate": 'Basic realm="r"'}, b"")

    with pytest.raises(RefResolutionError, match="Failed to clone ") as caught:
        await sources.resolve(f"git+{server.url}/r@main")

    assert caught.value.reason == "auth"


async def test_a_download_that_cannot_be_checked_is_stale(server: Any, sources: Sources, cache_dir: Path) -> None:
    server.answers["/a.md"] = (200, {}, b"a")
    await sources.resolve(f"{server.url}/a.md")
    server.stop()

    ordinary = await sources.resolve(f"{server.url}/a.md")
    detected = await sources.resolve(f"{server.url}/a.md", refresh=True)
    forced = await Sources(cache_dir, offline=True).resolve(f"{server.url}/a.md", refresh=True)

    assert (ordinary.stale, detected.stale, forced.stale) == (False, True, True)
    assert detected.warnings == forced.warnings == ("offline-stale",)


async def test_a_download_that_is_not_cached_is_an_error(server: Any, sources: Sources, cache_dir: Path) -> None:
    server.stop()

    for each in (sources, Sources(cache_dir, offline=True)):
        with pytest.raises(RefResolutionError) as caught:
            await each.resolve(f"{server.url}/a.md")
        assert caught.value.reason == "offline"


async def test_a_repository_of_plain_files_is_fetched_over_http(repository: Any, server: Any, sources: Sources) -> None:
    repository.git("update-server-info")
    git_dir = repository.path / ".git"
    for path in git_dir.rglob("*"):
        if path.is_file():
            server.answers[f"/r.git/{path.relative_to(git_dir)}"] = (200, {}, path.read_bytes())
    server.answers["/r.git/info/refs?service=git-upload-pack"] = server.answers["/r.git/info/refs"]

    resolved = await sources.resolve(f"git+{server.url}/r.git@main")

    assert (resolved.path / "bundle.md").read_text() == "hello\n"
