"""The configuration: broken entries are told and harm nobody, secrets in them are told to nobody."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from raw_mcp_server import entry

SECRET = "hunter2-hunter2"
HTTP = {"url": "https://example.org/mcp"}

BROKEN: dict[str, Any] = {
    "command: neither": {},
    "command: both": {"command": "x", **HTTP},
    "command: empty": {"command": ""},
    "command: blank": {"command": "  "},
    "command: number": {"command": 3},
    "args: text": {"command": "x", "args": "-v"},
    "args: numbers": {"command": "x", "args": [1]},
    "env: list": {"command": "x", "env": [SECRET]},
    "env: number": {"command": "x", "env": {"KEY": 3, "TOKEN": SECRET}},
    "env: name": {"command": "x", "env": {"A=B": SECRET}},
    "cwd: number": {"command": "x", "cwd": 3},
    "env_inherit: text": {"command": "x", "env_inherit": "*"},
    "url: number": {"url": 3},
    "url: file": {"url": "file:///etc/passwd"},
    "url: no host": {"url": "http:///mcp"},
    "url: user": {"url": f"https://user:{SECRET}@example.org/"},
    "url: port": {"url": "http://example.org:99999/"},
    "headers: list": {**HTTP, "headers": [SECRET]},
    "headers: number": {**HTTP, "headers": {"X": 3}},
    "headers: line end": {**HTTP, "headers": {"X": f"{SECRET}\r\nY: z"}},
    "transport: unknown": {**HTTP, "transport": "pigeon"},
    "transport: not for a program": {"command": "x", "transport": "http"},
    "transport: not for an address": {**HTTP, "type": "stdio"},
    "protocol: unknown": {**HTTP, "protocol": "newest"},
    "protocol: of the handshake": {**HTTP, "protocol": "2025-11-25"},
    "allow: text": {**HTTP, "allow": "get_*"},
    "deny: numbers": {**HTTP, "deny": [1]},
}


@pytest.mark.parametrize("case", BROKEN)
async def test_a_broken_entry_is_one_error_that_names_the_key_and_no_secret(
    mount_servers: Any, complaints: Any, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    mounted = await mount_servers({"bad": BROKEN[case], "good": entry()})

    (complaint,) = complaints()
    assert f"servers.bad.{case.partition(':')[0]}: " in complaint
    assert "; expected " in complaint
    assert SECRET not in caplog.text
    assert mounted.status("bad")["state"] == "failed"
    assert mounted.status("bad")["last_error"] in complaint
    assert mounted.status("good")["state"] == "idle"
    assert json.loads(json.dumps(mounted.status("bad"))) == mounted.status("bad")


async def test_beside_broken_entries_the_others_work(start_servers: Any) -> None:
    broken = {f"bad{number}": entry for number, entry in enumerate(BROKEN.values())}

    mounted = await start_servers({**broken, "good": entry()})

    assert set(mounted.tools) == {"mcp_good_echo"}


@pytest.mark.parametrize("name", ["", "-x", "a b", "ä", "x" * 65, 3])
async def test_a_name_that_cannot_be_used_is_an_error(mount_servers: Any, complaints: Any, name: Any) -> None:
    mounted = await mount_servers({name: entry()})

    assert len(complaints()) == 1
    assert mounted.status(str(name))["state"] == "failed"


@pytest.mark.parametrize("servers", [[], "x", 3])
async def test_servers_that_are_no_mapping_are_an_error_and_the_file_still_counts(
    mount_servers: Any, complaints: Any, tmp_path: Path, servers: Any
) -> None:
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"s": entry()}}))

    mounted = await mount_servers(servers, config_file=str(file))

    assert len(complaints()) == 1
    assert mounted.status("s")["state"] == "idle"


@pytest.mark.parametrize("text", [None, "{", "[]", '{"mcpServers": []}'])
async def test_a_file_that_cannot_be_used_is_an_error_and_the_servers_still_count(
    mount_servers: Any, complaints: Any, tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "servers.json"
    if text is not None:
        file.write_text(text)

    mounted = await mount_servers({"s": entry()}, config_file=str(file))

    assert len(complaints()) == 1
    assert mounted.status("s")["state"] == "idle"


async def test_a_file_brings_servers_and_variables_in_it_are_expanded(
    start_servers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORD", "from the host")
    env = {"A": "${WORD}", "B": "${UNSET_WORD:-default}", "C": "${UNSET_WORD}"}
    file = tmp_path / "servers.json"
    servers = {"f": entry("--tools", "environment", env=env), "s": {"command": "overridden"}}
    file.write_text(json.dumps({"mcpServers": servers}))

    mounted = await start_servers({"s": entry()}, config_file="servers.json", working_dir=str(tmp_path))

    assert set(mounted.tools) == {"mcp_f_environment", "mcp_s_echo"}
    environment = json.loads((await mounted.call("environment", "f")).output)
    assert (environment["A"], environment["B"], "C" in environment) == ("from the host", "default", False)


WARNED: dict[str, dict[str, Any]] = {
    "'headers'": {"command": "x", "headers": {"A": SECRET}},
    "'env'": {**HTTP, "env": {"KEY": SECRET}},
    "did you mean 'command'": {**entry(), "comand": "x"},
    "'call_timeout'": {**entry(), "call_timeout": "soon"},
    "plain http": {"url": "http://example.org/", "headers": {"A": SECRET}},
    "all that policy.environment passes on": {**entry(), "env_inherit": ["*"]},
    "env.KEY": {**entry(), "env": {"KEY": "${NEVER_SET}"}},
}


@pytest.mark.parametrize("words", WARNED)
async def test_what_is_odd_is_one_warning_and_no_error(
    mount_servers: Any, complaints: Any, caplog: pytest.LogCaptureFixture, words: str
) -> None:
    mounted = await mount_servers({"s": WARNED[words]})

    (warning,) = complaints(logging.WARNING)
    assert words in warning
    assert complaints() == []
    assert SECRET not in caplog.text
    assert mounted.status()["state"] == "idle"


@pytest.mark.parametrize("switch", [{"enabled": False}, {"enabled": "no"}, {"disabled": True}])
async def test_a_disabled_entry_is_not_looked_at(mount_servers: Any, complaints: Any, switch: dict[str, Any]) -> None:
    mounted = await mount_servers({"s": {"command": 3, **switch}})

    assert complaints() == []
    assert mounted.coordinator.get_capability("mcp.servers") == []


async def test_plain_http_to_this_machine_is_fine(mount_servers: Any, complaints: Any) -> None:
    hosts = ["127.0.0.1:1", "localhost", "[::1]:80"]
    await mount_servers({f"s{n}": {"url": f"http://{host}/", "headers": {"A": SECRET}} for n, host in enumerate(hosts)})

    assert complaints(logging.WARNING) == []


async def test_every_spelling_of_a_transport_is_known(mount_servers: Any) -> None:
    spellings = {"http": "http", "streamable-http": "http", "streamable_http": "http", "sse": "sse"}
    servers = {f"s-{spelling}": {**HTTP, "transport": spelling} for spelling in spellings}
    mounted = await mount_servers(
        {**servers, "older": {**HTTP, "type": "sse"}, "own": {"command": "x", "type": "stdio"}}
    )

    assert {name: mounted.status(f"s-{name}")["transport"] for name in spellings} == spellings
    assert (mounted.status("older")["transport"], mounted.status("own")["transport"]) == ("sse", "stdio")
