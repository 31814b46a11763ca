"""What a server gets of the host, and what of its secrets gets out."""

import asyncio
import json
import logging
import stat
from pathlib import Path
from typing import Any

import pytest
from raw_mcp_server import entry

KEY = "sk-ant-0123456789"


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_no_key_of_the_host_reaches_a_server_only_what_its_entry_names(
    start_servers: Any, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("AWS_SESSION", "x")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("TZ", "() { :; }")
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    server = entry("--tools", "environment", env={"OWN": "2"}, env_inherit=["JAVA_*"], protocol=protocol)

    mounted = await start_servers({"s": server})

    environment = json.loads((await mounted.call("environment")).output)
    assert (environment["OWN"], environment["JAVA_HOME"], environment["LC_ALL"]) == ("2", "/opt/java", "C.UTF-8")
    allowed = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TMPDIR", "OWN", "JAVA_HOME"}
    others = {name for name in environment if not name.startswith(("LC_", "AMPLIFIER_CHILD_"))} - allowed
    assert others == set()
    assert KEY not in str(environment)


async def test_a_variable_that_the_policy_keeps_back_is_not_inherited_by_naming_it(
    start_servers: Any, monkeypatch: pytest.MonkeyPatch, complaints: Any
) -> None:
    monkeypatch.setenv("APP_ONE", "1")
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    server = entry("--tools", "environment", env={"OWN_TOKEN": "2"}, env_inherit=["*", "APP_*"])

    mounted = await start_servers({"s": server})

    environment = json.loads((await mounted.call("environment")).output)
    assert (environment["JAVA_HOME"], "APP_ONE" in environment, environment["OWN_TOKEN"]) == ("/opt/java", False, "2")
    told = "server s is not given APP_ONE: add it to policy.environment.pass"
    assert told in complaints(logging.WARNING)


async def test_secrets_of_an_entry_are_redacted_in_results_logs_and_events_and_a_path_is_not(
    start_servers: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    env = {"MY_TOKEN": KEY, "HOME_PATH": "/opt/somewhere", "SHORT_KEY": "abc"}
    server = entry("--tools", "echo", "shout", "crash", "repeat", env=env, max_restarts=0)
    with caplog.at_level(logging.DEBUG, "amplifier_module_tool_mcp.server.s"):
        mounted = await start_servers({"s": server}, server_log_dir=str(tmp_path / "logs"))

        said = await mounted.call("echo", text=f"{KEY} abc /opt/somewhere")
        await mounted.call("shout", text=f"a\x07 {KEY} /opt/somewhere")
        failed = await mounted.call("repeat", error={"code": 7, "message": f"no {KEY}", "data": {KEY: [KEY]}})
        await mounted.call("crash")
        await mounted.until(lambda: mounted.told("server_failed") != [])
    await mounted.cleanup()

    assert said.output == "[REDACTED] abc /opt/somewhere"
    assert failed.error["message"] == "mcp_s_repeat: no [REDACTED] (MCP error 7)"
    assert failed.error["mcp_data"] == {"[REDACTED]": ["[REDACTED]"]}
    assert mounted.told("server_failed")[0]["stderr_tail"] == ["a [REDACTED] /opt/somewhere", "last words"]
    assert KEY not in caplog.text + json.dumps(mounted.recorder.events, default=str) + json.dumps(mounted.status())
    log = tmp_path / "logs/s.log"
    assert log.read_text() == "a [REDACTED] /opt/somewhere\nlast words\n"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


async def test_what_a_server_prints_is_logged_under_its_name(
    start_servers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        mounted = await start_servers({"s": entry("--tools", "shout", "--print", "no message")}, verbose_servers=True)
        await mounted.call("shout", text="x" * 3000)
        await mounted.until(lambda: any("xxx" in record.getMessage() for record in caplog.records))

    lines = [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "amplifier_module_tool_mcp.server.s"
    ]
    assert lines == [("INFO", "not a message: no message"), ("INFO", "x" * 2000)]


async def test_a_flood_on_stderr_neither_blocks_the_server_nor_fills_the_disk(
    start_servers: Any, tmp_path: Path
) -> None:
    mounted = await start_servers({"s": entry("--tools", "shout", "echo")}, server_log_dir=str(tmp_path))

    for _ in range(3):
        await mounted.call("shout", text="\n".join(["y" * 999] * 700))
    assert (await mounted.call("echo", text="fine")).output == "fine"
    await mounted.cleanup()

    sizes = [(tmp_path / name).stat().st_size for name in ("s.log", "s.log.1")]
    assert all(0 < size <= 1 << 20 for size in sizes)
    assert not (tmp_path / "s.log.2").exists()


async def test_a_log_directory_that_cannot_be_written_is_one_warning(
    start_servers: Any, tmp_path: Path, complaints: Any
) -> None:
    (tmp_path / "file").touch()
    mounted = await start_servers({"s": entry("--tools", "shout")}, server_log_dir=str(tmp_path / "file"))

    for text in ("one", "two"):
        await mounted.call("shout", text=text)
    await asyncio.sleep(0.05)
    await mounted.cleanup()

    assert len([text for text in complaints(logging.WARNING) if "cannot be written" in text]) == 1
