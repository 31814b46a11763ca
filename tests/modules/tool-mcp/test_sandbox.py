"""Servers in a sandbox: what their entry gives them, and nothing else."""

import logging
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_mcp_server import PROGRAM, entry
from sandboxes import PYTHON, fingerprint, needs_sandbox, place_outside_tmp

NO_SANDBOX = "amplifier_module_tool_mcp.stdio_transport.find_sandbox"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory outside `/tmp` with a home, in which a key and a file lie, and a working directory."""
    with place_outside_tmp() as directory:
        for name in ("home/.ssh", "home/data", "home/cache", "work"):
            (directory / name).mkdir(parents=True)
        (directory / "home/.ssh/id_rsa").write_text("private key")
        (directory / "home/data/file").write_text("data")
        (directory / "home/notes").write_text("notes")
        shutil.copy(PROGRAM, directory / "server.py")
        monkeypatch.setenv("HOME", str(directory / "home"))
        yield directory


def confined(place: Path, **keys: Any) -> dict[str, Any]:
    """Return the entry of a server that runs commands, with a program that its sandbox does not hide."""
    server = entry(sandbox="required", cwd=str(place / "work"), **keys)
    return {**server, "command": PYTHON, "args": ["-S", "-I", str(place / "server.py"), "--tools", "run"]}


async def output(start_servers: Any, place: Path, command: str, **keys: Any) -> str:
    server = confined(place, **keys)
    mounted = await start_servers({"s": server})
    text: str = (await mounted.call("run", command=command)).output
    return text


@needs_sandbox
async def test_a_server_can_change_nothing_and_sees_no_secrets(start_servers: Any, place: Path) -> None:
    before = fingerprint(place)

    said = await output(
        start_servers, place, "touch made ~/made; cat ~/.ssh/id_rsa; cat ~/notes; touch /tmp/own && echo own"
    )

    assert "private key" not in said
    assert "notes" in said
    assert "own" in said
    assert fingerprint(place) == before


@needs_sandbox
async def test_a_server_changes_what_its_entry_lets_it_write(start_servers: Any, place: Path) -> None:
    await output(start_servers, place, "touch made ~/cache/made ~/made", write=[".", "~/cache"])

    places = ("work", "home/cache", "home")
    assert [(place / name / "made").exists() for name in places] == [True, True, False]


@needs_sandbox
async def test_with_a_list_to_read_a_server_sees_no_more_of_the_home(start_servers: Any, place: Path) -> None:
    said = await output(start_servers, place, "cat ~/data/file; ls -A ~; cat ~/.ssh/id_rsa", read=["~/data", "~/.ssh"])

    assert said.startswith("data")
    assert "notes" not in said
    assert "private key" not in said


@needs_sandbox
@pytest.mark.parametrize("network", [True, False])
async def test_a_server_has_the_network_if_its_entry_says_so(start_servers: Any, place: Path, network: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{listener.getsockname()[1]} && echo connected'"

        said = await output(start_servers, place, command, network=network)

    assert (said == "connected\n") is network


@needs_sandbox
async def test_everything_a_server_started_ends_with_it(start_servers: Any, place: Path, started: Any) -> None:
    server = confined(place)
    mounted = await start_servers({"s": server})
    await mounted.call("run", command="setsid env -i sleep 60 >/dev/null 2>&1 &")

    await mounted.cleanup()

    assert started.pids() == []


@needs_sandbox
async def test_a_command_that_is_missing_fails_at_once(start_servers: Any, place: Path) -> None:
    mounted = await start_servers({"s": {"command": "no-such-server", "sandbox": "required", "cwd": str(place)}})

    await mounted.until(lambda: mounted.status()["state"] == "failed")

    assert "no-such-server" in str(mounted.told("server_failed"))


async def test_without_a_sandbox_required_fails_and_auto_goes_on(
    start_servers: Any, monkeypatch: pytest.MonkeyPatch, complaints: Any
) -> None:
    monkeypatch.setattr(NO_SANDBOX, lambda: None)
    servers = {
        "required": entry("--tools", "echo", sandbox="required"),
        "auto": entry("--tools", "echo", sandbox="auto"),
        "off": entry("--tools", "echo"),
    }

    mounted = await start_servers(servers)

    assert [mounted.status(name)["state"] for name in servers] == ["failed", "ready", "ready"]
    assert "none works on this machine" in str(mounted.told("server_failed"))
    warned = [line for line in complaints(logging.WARNING) if "without a sandbox" in line]
    assert len(warned) == 1
    assert "auto" in warned[0]
