"""The git child: bounded, cancellable, silent, and never more than git."""

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import warm_python
from interruptions import cancelled_everywhere

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources import Limits, ProgressEvent, Sources
from amplifier_foundation.sources.repositories.git_process import GitCloneTimeoutError, run_git

_RESOLVE = """
import asyncio, sys
from pathlib import Path
from amplifier_foundation.sources import Sources
print(asyncio.run(Sources(Path(sys.argv[1])).resolve(sys.argv[2])).from_cache)
"""


async def test_ssh_never_asks_and_is_the_users_own_command(slow_remote: Any, sources: Sources) -> None:
    resolved = await sources.resolve(f"{slow_remote.source}@main")

    assert (resolved.path / "bundle.md").read_text() == "hello\n"
    assert len(slow_remote.connections()) == 2
    assert all("-oBatchMode=yes" in connection for connection in slow_remote.connections())


async def test_the_ssh_command_of_the_configuration_is_used(
    slow_remote: Any, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("COUNT", "1"), ("KEY_0", "core.sshCommand"), ("VALUE_0", os.environ["GIT_SSH_COMMAND"])):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    monkeypatch.delenv("GIT_SSH_COMMAND")

    await sources.resolve(f"{slow_remote.source}@main")

    assert all("-oBatchMode=yes" in connection for connection in slow_remote.connections())


async def test_a_fetch_is_tried_three_times_with_a_fresh_start(slow_remote: Any, sources: Sources) -> None:
    commit = slow_remote.repository.git("rev-parse", "HEAD")
    slow_remote.fail(2)

    resolved = await sources.resolve(f"{slow_remote.source}@{commit}")

    assert (resolved.commit, len(slow_remote.connections())) == (commit, 3)


async def test_after_three_failures_the_reason_is_given_and_nothing_kept(slow_remote: Any, sources: Sources) -> None:
    commit = slow_remote.repository.git("rev-parse", "HEAD")
    slow_remote.fail(9)

    with pytest.raises(RefResolutionError, match=r"Failed to clone ssh://git@host\.invalid") as caught:
        await sources.resolve(f"{slow_remote.source}@{commit}")

    assert (caught.value.reason, len(slow_remote.connections())) == ("network", 3)
    assert list((sources.cache_dir / "git").iterdir()) == []


async def test_a_fetch_that_takes_too_long_is_ended_whole_and_not_tried_again(
    slow_remote: Any, cache_dir: Path, monkeypatch: pytest.MonkeyPatch, started: Any
) -> None:
    commit = slow_remote.repository.git("rev-parse", "HEAD")
    monkeypatch.setenv("AMPLIFIER_GIT_CLONE_TIMEOUT_S", "0.3")
    slow_remote.close()

    with pytest.raises(RefResolutionError, match=r"did not finish within 0\.3 s") as caught:
        await Sources(cache_dir).resolve(f"{slow_remote.source}@{commit}")

    started.wait_for(0)
    assert (caught.value.reason, len(slow_remote.connections())) == ("timeout", 1)
    assert list((cache_dir / "git").iterdir()) == []


@pytest.mark.parametrize("value", ["soon", "0", "-5", "inf", "nan"])
async def test_a_time_limit_that_is_none_is_warned_about(
    repository: Any, sources: Sources, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    monkeypatch.setenv("AMPLIFIER_GIT_CLONE_TIMEOUT_S", value)

    await sources.resolve(f"{repository.source}@main")

    assert f"AMPLIFIER_GIT_CLONE_TIMEOUT_S={value!r}" in caplog.text


async def test_a_cancelled_fetch_leaves_no_process_and_no_half_written_tree(
    slow_remote: Any, sources: Sources, started: Any
) -> None:
    commit = slow_remote.repository.git("rev-parse", "HEAD")
    slow_remote.close()
    resolving = asyncio.create_task(sources.resolve(f"{slow_remote.source}@{commit}"))
    await slow_remote.wait_for_connections(1)

    resolving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await resolving

    started.wait_for(0)
    assert list((sources.cache_dir / "git").iterdir()) == []
    slow_remote.open()
    assert (await sources.resolve(f"{slow_remote.source}@{commit}")).commit == commit


async def test_one_of_two_waiting_for_the_same_fetch_may_be_cancelled(slow_remote: Any, sources: Sources) -> None:
    source = f"{slow_remote.source}@{slow_remote.repository.git('rev-parse', 'HEAD')}"
    slow_remote.close()
    first, second = (asyncio.create_task(sources.resolve(source)) for _ in range(2))
    await slow_remote.wait_for_connections(1)

    first.cancel()
    await asyncio.wait({first})
    slow_remote.open()

    assert (await second).path.is_dir()


async def test_an_interrupt_ends_git_with_the_process(slow_remote: Any, cache_dir: Path, started: Any) -> None:
    slow_remote.close()
    process = _start(cache_dir, f"{slow_remote.source}@{slow_remote.repository.git('rev-parse', 'HEAD')}")
    await slow_remote.wait_for_connections(1)

    process.send_signal(signal.SIGINT)
    await asyncio.to_thread(process.communicate)

    started.wait_for(0)
    assert list((cache_dir / "git").iterdir()) == []


async def test_a_killed_process_leaves_a_cache_that_works(
    slow_remote: Any, cache_dir: Path, sources: Sources, started: Any
) -> None:
    commit = slow_remote.repository.git("rev-parse", "HEAD")
    slow_remote.close()
    process = _start(cache_dir, f"{slow_remote.source}@{commit}")
    await slow_remote.wait_for_connections(1)

    process.kill()
    await asyncio.to_thread(process.communicate)
    left = [path.name for path in (cache_dir / "git").iterdir()]
    started.end()
    slow_remote.open()
    resolved = await sources.resolve(f"{slow_remote.source}@{commit}")

    assert [name.startswith(".staging-") for name in left] == [True]
    assert (resolved.path / "bundle.md").read_text() == "hello\n"
    assert sorted(path.name for path in (cache_dir / "git").iterdir()) == [commit, f"{commit}.json"]


async def test_processes_that_resolve_one_reference_share_the_work(slow_remote: Any, cache_dir: Path) -> None:
    slow_remote.close()
    processes = [_start(cache_dir, f"{slow_remote.source}@main") for _ in range(2)]
    await slow_remote.wait_for_connections(1)
    slow_remote.open()

    outputs = await asyncio.gather(*(asyncio.to_thread(process.communicate) for process in processes))

    assert sorted(output.strip() for output, _ in outputs) == ["False", "True"]
    assert len(slow_remote.connections()) == 2  # one question, one fetch


async def test_thirty_repositories_come_in_parallel_each_once(
    new_repository: Callable[..., Any],
    cache_dir: Path,
    limits: Limits,
    tmp_path: Path,
    git_calls: Callable[[], list[str]],
) -> None:
    first = new_repository("0")
    commits = {}
    for number in range(30):
        copy = tmp_path / "remote" / f"copy-{number}"
        shutil.copytree(first.path, copy)
        tree = first.git("rev-parse", "HEAD^{tree}")
        commits[copy.as_uri()] = _git(copy, "commit-tree", "-m", f"Commit {number}", tree)
        _git(copy, "update-ref", "refs/heads/main", commits[copy.as_uri()])
    events: list[ProgressEvent] = []
    sources = Sources(cache_dir, limits=limits, progress=events.append)
    calls = len(git_calls())

    resolved = await asyncio.gather(*(sources.resolve(f"git+{url}@main") for url in commits for _ in range(2)))

    assert {found.ref.removeprefix("git+").removesuffix("@main"): found.commit for found in resolved} == commits
    assert [sum(command in call for call in git_calls()[calls:]) for command in (" ls-remote ", " fetch ")] == [30, 30]
    assert sum(not found.from_cache for found in resolved) == 30
    one = [event.phase for event in events if event.ref == resolved[0].ref]
    assert sorted(one) == ["asking", "fetching", "ready", "ready", "waiting"]


async def test_no_more_git_children_run_than_allowed(
    new_repository: Callable[..., Any], cache_dir: Path, limits: Limits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repositories = [new_repository(str(number), {"number": str(number)}) for number in range(6)]
    log, folder = tmp_path / "running", tmp_path / "counting"
    folder.mkdir()
    (folder / "git").write_text(
        f'#!/bin/sh\necho + >> "{log}"\nPATH="${{PATH#*:}}" git "$@"\nstatus=$?\necho - >> "{log}"\nexit $status\n'
    )
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    sources = Sources(cache_dir, limits=replace(limits, parallel_git=2))

    await asyncio.gather(*(sources.resolve(f"{repository.source}@main") for repository in repositories))

    running = [0]
    for mark in log.read_text().split():
        running.append(running[-1] + (1 if mark == "+" else -1))
    assert max(running) == 2


async def test_hooks_and_filters_of_the_user_never_run(
    new_repository: Callable[..., Any], sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = new_repository(files={".gitattributes": "* filter=lfs\n", "a": "a"})
    hook, config, ran = tmp_path / "hooks" / "post-checkout", tmp_path / "gitconfig", tmp_path / "ran"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    config.write_text(
        f'[core]\n\thooksPath = {hook.parent}\n[filter "lfs"]\n\tsmudge = touch {ran}; cat\n\trequired = true\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))

    resolved = await sources.resolve(f"{repository.source}@main")

    assert ((resolved.path / "a").read_text(), ran.exists()) == ("a", False)


@pytest.mark.parametrize("end", ["@--upload-pack=touch${IFS}ran", "@-x", "@--help"])
async def test_an_option_in_the_place_of_a_ref_reaches_nobody(
    repository: Any, sources: Sources, git_calls: Callable[[], list[str]], end: str
) -> None:
    calls = len(git_calls())

    with pytest.raises(RefResolutionError) as caught:
        await sources.resolve(f"{repository.source}{end}")

    assert (caught.value.reason, len(git_calls())) == ("syntax", calls)


async def test_variables_of_a_running_hook_do_not_redirect_git(
    repository: Any, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))

    resolved = await sources.resolve(f"{repository.source}@main")

    assert (resolved.path / "bundle.md").is_file()
    assert not (tmp_path / "index").exists()


async def test_a_submodule_is_not_fetched_and_a_path_into_it_says_so(
    new_repository: Callable[..., Any], sources: Sources
) -> None:
    inner, outer = new_repository("inner"), new_repository("outer")
    outer.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner.path.as_uri(), "lib/inner")
    outer.commit({})

    resolved = await sources.resolve(f"{outer.source}@main")
    with pytest.raises(RefResolutionError, match="'lib/inner' is a submodule, and submodules are not") as caught:
        await sources.resolve(f"{outer.source}@main#lib/inner")

    assert not (resolved.path / "lib" / "inner").exists()
    assert caught.value.reason == "subpath-missing"


@pytest.mark.parametrize("target", ["/etc/hostname", "../../outside", "sub/../../outside"])
async def test_a_link_that_leaves_the_tree_is_refused_and_nothing_kept(
    repository: Any, sources: Sources, target: str
) -> None:
    (repository.path / "link").symlink_to(target)
    repository.commit({})

    with pytest.raises(RefResolutionError, match="the link 'link' leads out") as caught:
        await sources.resolve(f"{repository.source}@main")

    assert caught.value.reason == "unsafe-path"
    assert list((sources.cache_dir / "git").iterdir()) == []


async def test_a_link_inside_of_the_tree_is_kept(repository: Any, sources: Sources) -> None:
    (repository.path / "modules" / "link").symlink_to("../bundle.md")
    repository.commit({})

    resolved = await sources.resolve(f"{repository.source}@main#modules")

    assert stat.S_ISLNK((resolved.path / "link").lstat().st_mode)
    assert (resolved.path / "link").read_text() == "hello\n"
    assert resolved.content_hash.startswith("sha256:")


async def test_a_repository_that_unfolds_to_masses_of_files_is_refused_early(
    repository: Any, cache_dir: Path, limits: Limits
) -> None:
    blob = repository.git("rev-parse", "HEAD:bundle.md")
    tree, kind, mode = blob, "blob", "100644"
    for _ in range(5):
        listing = "".join(f"{mode} {kind} {tree}\tf{number}\n" for number in range(10))
        tree, kind, mode = _git(repository.path, "mktree", text=listing), "tree", "040000"
    commit = repository.git("commit-tree", "-m", "Bomb", tree)
    repository.git("update-ref", "refs/heads/bomb", commit)

    with pytest.raises(RefResolutionError, match="more than 1,000 files") as caught:
        await Sources(cache_dir, limits=replace(limits, tree_entries=1000)).resolve(f"{repository.source}@bomb")

    assert caught.value.reason == "too-large"
    assert list((cache_dir / "git").iterdir()) == []


async def test_a_tree_with_too_many_bytes_is_refused(repository: Any, cache_dir: Path, limits: Limits) -> None:
    with pytest.raises(RefResolutionError, match="more than 10 bytes") as caught:
        await Sources(cache_dir, limits=replace(limits, tree_bytes=10)).resolve(repository.source)

    assert caught.value.reason == "too-large"


def _start(cache_dir: Path, source: str) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return warm_python.Popen(
        [sys.executable, "-c", _RESOLVE, str(cache_dir), source], stdout=pipe, stderr=pipe, text=True
    )


def _git(path: Path, *arguments: str, text: str = "") -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=path, input=text, check=True, capture_output=True, text=True).stdout.strip()


async def test_a_question_that_fails_in_passing_is_asked_again(
    repository: Any, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, log = tmp_path / "unsteady", tmp_path / "calls"
    folder.mkdir()
    script = folder / "git"
    script.write_text(
        f'#!/bin/sh\necho x >> "{log}"\n'
        f'[ $(wc -l < "{log}") -gt 2 ] || {{ echo "fatal: early EOF" >&2; exit 128; }}\n'
        'PATH="${PATH#*:}" exec git "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    assert (await sources.resolve(f"{repository.source}@main")).path.is_dir()


async def test_what_a_git_that_is_gone_left_running_does_not_outlive_the_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: Any
) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\nsleep 60 &\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    with pytest.raises(GitCloneTimeoutError):
        await run_git("fetch", timeout_s=0.3)

    assert started.pids() == []


async def test_a_git_that_is_cancelled_leaves_nothing_open_wherever_it_is_waited_for() -> None:
    assert await cancelled_everywhere(lambda: run_git("--version", timeout_s=60)) > 2
