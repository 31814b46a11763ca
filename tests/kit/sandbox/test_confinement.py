"""What a sandboxed program can see, change, reach and start."""

import asyncio
import os
import shlex
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sandboxes import PYTHON, fingerprint, needs_sandbox

from amplifier_core.testing import wait_for
from amplifier_kit.sandbox.availability import find_sandbox
from amplifier_kit.sandbox.bubblewrap import Bubblewrap

pytestmark = needs_sandbox


def replaced_overlays(has_overlays: bool) -> Any:
    """The sandbox of this machine, with overlays or as one of an older release."""
    found = find_sandbox()
    return replace(found, has_overlays=has_overlays) if isinstance(found, Bubblewrap) else found


async def test_nothing_can_be_changed_where_nothing_is_writable(run: Any, place: Path) -> None:
    before = fingerprint(place)

    outcome = await run("touch made; touch ~/made; rm -rf ~; mkdir /made; echo x > /etc/hostname")

    assert outcome.err.count("Read-only file system") >= 4
    assert fingerprint(place) == before


async def test_writable_places_change_and_others_do_not(run: Any, place: Path) -> None:
    outcome = await run("touch made; touch ~/made", writable=(place / "work",))

    assert (place / "work/made").exists()
    assert not (place / "home/made").exists()
    assert outcome.code == 1


async def test_what_is_read_only_stays_so_inside_of_a_writable_place(run: Any, place: Path) -> None:
    (place / "work/kept").mkdir()
    (place / "work/kept.txt").write_text("kept")
    kept = (place / "work/kept", place / "work/kept.txt")

    await run("touch kept/x; echo x > kept.txt; rm -rf kept kept.txt", writable=(place / "work",), read_only=kept)

    assert (place / "work/kept.txt").read_text() == "kept"
    assert list((place / "work/kept").iterdir()) == []


async def test_hidden_places_are_empty_and_the_rest_of_the_home_is_there(run: Any, place: Path) -> None:
    home = place / "home"
    (home / ".ssh").mkdir()
    (home / ".ssh/id_rsa").write_text("secret")
    (home / ".netrc").write_text("secret")
    (home / "tool.txt").write_text("tool")
    (place / "work/link").symlink_to(home / ".ssh/id_rsa")

    outcome = await run(
        "cat ~/.ssh/id_rsa link; ls -A ~/.ssh; cat ~/.netrc ~/tool.txt; touch ~/.ssh/x",
        hidden=(home / ".ssh", home / ".netrc"),
        writable=(home,),
    )

    assert outcome.out == "tool"
    assert "secret" not in outcome.err
    assert (home / ".ssh/id_rsa").read_text() == "secret"
    assert not (home / ".ssh/x").exists()


async def test_tmp_is_private_and_a_working_directory_below_it_is_there(run: Any, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/file").write_text("here")
    (tmp_path / "log").mkdir()
    (tmp_path / "log/lines").write_text("lines")
    (tmp_path / "secret").write_text("not here")
    made = tmp_path.parents[1] / "made"

    outcome = await run(
        f"cat file; cat {tmp_path}/log/lines; ls {tmp_path}; echo x > {made} && echo private; touch made",
        working_dir=tmp_path / "work",
        readable=(tmp_path / "log",),
    )

    assert outcome.out == "herelineslog\nwork\nprivate\n"
    assert not (tmp_path / "work/made").exists()
    assert not made.exists()

    await run("touch made", working_dir=tmp_path / "work", writable=(tmp_path / "work",))
    assert (tmp_path / "work/made").exists()


async def test_a_writable_root_leaves_private_what_is_private(run: Any, place: Path) -> None:
    outcome = await run(
        f"touch {place}/made; ls -A /tmp /run; ls /proc | grep -c '^[0-9]'; ls /dev | wc -l", writable=(Path("/"),)
    )

    assert (place / "made").exists()
    assert outcome.out.splitlines()[:3] == ["/run:", "", "/tmp:"]
    assert int(outcome.out.splitlines()[-2]) < 8
    assert int(outcome.out.splitlines()[-1]) < 20


async def test_processes_of_the_host_cannot_be_seen_or_signalled(run: Any) -> None:
    pid = os.getpid()

    outcome = await run(f"kill -0 {pid}; cat /proc/{pid}/environ; ls /proc/1/root/tmp; ls /proc | grep -c '^[0-9]'")

    assert "No such process" in outcome.err
    assert int(outcome.out) < 9


async def test_an_unprivileged_user_without_capabilities_runs_it(run: Any) -> None:
    outcome = await run("id -u; grep CapEff /proc/self/status; unshare -Ur id; mount -t tmpfs x /mnt; echo $?")

    uid, capabilities, *_, mounted = outcome.out.split("\n")[:-1]
    assert int(uid) > 0
    assert int(capabilities.split()[1], 16) == 0
    assert mounted != "0"


async def test_no_packet_leaves_without_network(run: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        port = listener.getsockname()[1]

        outcome = await run(f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected")

        assert outcome.out == ""
        with pytest.raises(TimeoutError):
            listener.accept()


async def test_with_network_it_is_the_hosts(run: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        outcome = await run(f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected", has_network=True)

        assert outcome.out == "connected\n"


@pytest.mark.parametrize("folder", ["run", "var/run", "runtime"])
async def test_unix_sockets_of_daemons_cannot_be_reached(
    run: Any, place: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if folder == "runtime":
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
        path = place / "daemon.sock"
    else:
        path = Path(f"/{folder}/amplifier-test-{os.getpid()}.sock")
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            try:
                listener.bind(str(path))
            except PermissionError:
                pytest.skip("only root can listen there")
            listener.listen()
            program = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r}); print('connected')"

            outcome = await run(f'{shlex.quote(PYTHON)} -S -c "{program}"', working_dir=Path("/"), has_network=True)

        assert outcome.out == ""
        assert "FileNotFoundError" in outcome.err
    finally:
        path.unlink(missing_ok=True)


async def test_without_network_no_daemon_is_reached_wherever_it_listens(run: Any, place: Path) -> None:
    program = "import socket; socket.socket(socket.AF_UNIX).connect('work/daemon.sock'); print('connected')"
    connect = f'cd {place} && {shlex.quote(PYTHON)} -S -c "{program}"'
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "work/daemon.sock"))
        listener.listen()

        without, with_network = await run(connect), await run(connect, has_network=True)

    assert (without.out, with_network.out) == ("", "connected\n")


async def test_without_network_programs_can_still_talk_among_themselves(run: Any) -> None:
    program = "import asyncio, socket; socket.socketpair(); asyncio.run(asyncio.sleep(0)); print('talking')"

    outcome = await run(f'{shlex.quote(PYTHON)} -S -c "{program}"')

    assert outcome.out == "talking\n"


async def test_what_it_left_running_ends_with_it(run: Any, started: Any) -> None:
    outcome = await run("(setsid env -i sleep 60 &) ; nohup sleep 60 >/dev/null 2>&1 & echo done")

    assert (outcome.code, outcome.out) == (0, "done\n")
    assert started.pids() == []


@pytest.mark.parametrize(
    ("script", "code"), [("exit 3", 3), ("exit 1", 1), ("kill -9 $$", -9), ("kill -TERM $$", -15), ("exit 255", 255)]
)
async def test_the_result_is_the_programs(run: Any, script: str, code: int) -> None:
    assert (await run(script)).code == code


async def test_the_environment_is_the_programs_and_says_nothing_about_places_outside(run: Any) -> None:
    outcome = await run("env")

    names = {line.partition("=")[0] for line in outcome.out.splitlines()}
    assert {"PATH", "HOME"} <= names
    assert {name for name in names if not name.startswith("AMPLIFIER_CHILD_")} <= {"PATH", "HOME", "PWD", "SHLVL", "_"}


async def test_many_at_once(run: Any) -> None:
    outcomes = await asyncio.gather(*(run(f"exit {code}") for code in range(8)))

    assert [outcome.code for outcome in outcomes] == list(range(8))


@pytest.mark.parametrize("has_overlays", [True, False])
async def test_a_secret_stays_hidden_when_it_is_replaced_or_made_while_a_program_runs(
    run: Any, place: Path, has_overlays: bool
) -> None:
    home = place / "home"
    for name in (".ssh", ".config/gcloud", "tools", "project"):
        (home / name).mkdir(parents=True)
    for name in (".netrc", ".ssh/id", ".config/gcloud/key", "replaced"):
        (home / name).write_text("SECRET")
    (home / ".config/other").write_text("other ")
    (home / "tools/tool").write_text("tool ")
    (home / "link").symlink_to("tools/tool")
    hidden = tuple(home / name for name in (".netrc", ".ssh", ".config/gcloud", ".later", ".missing/inner"))
    script = (
        "touch ready; until [ -e go ]; do sleep 0.02; done; "
        "cat ~/link ~/.config/other; cat ~/.netrc ~/.ssh/id ~/.config/gcloud/key ~/.later ~/.missing/inner; ls -A ~"
    )

    async def change() -> None:
        await wait_for(lambda: (home / "project/ready").exists())
        for name in (".netrc", ".later"):
            (home / "replaced").write_text("SECRET")
            (home / "replaced").replace(home / name)
        (home / ".ssh").rename(home / "moved")
        (home / ".ssh").mkdir()
        (home / ".ssh/id").write_text("SECRET")
        (home / ".missing").mkdir()
        (home / ".missing/inner").write_text("SECRET")
        (home / "project/go").touch()

    outcome, _ = await asyncio.gather(
        run(
            script,
            sandbox=replaced_overlays(has_overlays),
            working_dir=home / "project",
            writable=(home / "project",),
            hidden=hidden,
        ),
        change(),
    )

    assert outcome.out.startswith("tool other ")
    assert "SECRET" not in outcome.out
    assert not {".netrc", ".ssh", ".later", ".missing"} & set(outcome.out.split())
    assert (home / "project/ready").exists()


async def test_a_home_directory_that_is_writable_hides_its_secrets_for_good(run: Any, place: Path) -> None:
    home = place / "home"
    (home / "project").mkdir()
    (home / ".netrc").write_text("SECRET")

    outcome = await run(
        "touch project/made ready; cat .netrc", working_dir=home, writable=(home,), hidden=(home / ".netrc",)
    )

    assert "SECRET" not in outcome.out
    assert (home / "project/made").exists()


async def test_what_is_shown_below_a_hidden_place_is_there_and_nothing_beside_it(run: Any, place: Path) -> None:
    state = place / "home/.amplifierd/state/sessions"
    for name in ("own", "other"):
        (state / name).mkdir(parents=True)
        (state / name / "log").write_text(name)

    outcome = await run(
        f"cat {state}/*/log; ls {state}; touch {state}/own/x {state}/x",
        hidden=(place / "home/.amplifierd/state",),
        shown=(state / "own",),
    )

    assert outcome.out == "ownown\n"
    assert [path.name for path in sorted(state.rglob("*"))] == ["other", "log", "own", "log"]
