"""When servers start: with the first prompt or with the session, all at once, and no turn waits too long."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_mcp import mount
from raw_mcp_server import entry

from amplifier_core import AmplifierSession, HookResult
from amplifier_core.testing import MockProvider, MockTool
from amplifier_core.validation import ToolValidator

MODULE = Path(__file__).parents[3] / "modules/tool-mcp"

StartSession = Callable[..., Awaitable[AmplifierSession]]


@pytest.fixture
async def start_session() -> AsyncIterator[StartSession]:
    sessions: list[AmplifierSession] = []

    async def start(servers: dict[str, Any], **config: Any) -> AmplifierSession:
        plan = {
            "session": {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}},
            "tools": [{"module": "tool-mcp", "config": {"servers": servers, **config}}],
        }
        session = AmplifierSession(plan)
        sessions.append(session)
        await session.initialize()
        assert session.status.load_failures == []
        return session

    yield start
    for session in sessions:
        await session.cleanup()


def tools_in(request: Any) -> set[str]:
    return {tool.name for tool in request.tools or ()}


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_a_lazy_server_starts_with_the_first_prompt_and_its_tools_are_in_the_first_request(
    start_session: StartSession, started: Any, protocol: str
) -> None:
    session = await start_session({"s": entry(protocol=protocol)})
    provider = MockProvider(["first", "second"])
    await session.coordinator.mount("providers", provider, name="mock")
    assert session.coordinator.get("tools") == {}
    assert started.pids() == []

    await session.execute("go")

    assert tools_in(provider.requests[0]) == {"mcp_s_echo"}
    assert len(started.pids()) == 1
    await session.cleanup()
    assert started.pids() == []


async def test_a_session_that_is_never_prompted_starts_no_process(
    start_session: StartSession, started: Any, tmp_path: Path
) -> None:
    session = await start_session({"s": entry("--starts", str(tmp_path / "starts"))})

    await session.cleanup()

    assert not (tmp_path / "starts").exists()


async def test_an_eager_server_is_there_after_initialize(start_session: StartSession) -> None:
    session = await start_session({"s": entry(), "later": entry(start="lazy")}, start="eager")

    assert set(session.coordinator.get("tools")) == {"mcp_s_echo"}


async def test_an_eager_server_starts_with_the_prompt_where_nobody_tells_that_the_session_is_ready(
    start_servers: Any,
) -> None:
    mounted = await start_servers({"s": entry(start="eager")})

    assert set(mounted.tools) == {"mcp_s_echo"}


async def test_validating_the_module_starts_nothing(started: Any, tmp_path: Path) -> None:
    config = {"servers": {"s": entry("--starts", str(tmp_path / "starts"), start="eager")}}

    result = await ToolValidator().validate(MODULE, config=config)

    assert result.passed
    assert not (tmp_path / "starts").exists()


async def test_a_denied_prompt_starts_nothing(mount_servers: Any, started: Any) -> None:
    mounted = await mount_servers({"s": entry()})

    async def deny(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="deny", reason="no")

    mounted.coordinator.hooks.register("prompt:submit", deny, priority=100, name="guard")
    await mounted.prompt()

    assert mounted.status()["state"] == "idle"
    assert started.pids() == []


async def test_a_slow_server_holds_up_the_turn_for_startup_timeout_and_its_tools_come_later(
    mount_servers: Any,
) -> None:
    slow = {**entry("--delay", "2"), "startup_timeout": 0.2}
    mounted = await mount_servers({"s": slow, "quick": entry()})
    before = time.monotonic()

    await mounted.prompt()

    assert time.monotonic() - before < 1.9
    assert mounted.status()["state"] == "starting"
    assert set(mounted.tools) == {"mcp_quick_echo"}
    await mounted.prompt()
    assert mounted.status()["state"] == "starting"
    await mounted.until(lambda: "mcp_s_echo" in mounted.tools)
    assert (await mounted.call("echo", text="late")).output == "late"


async def test_servers_start_at_the_same_time(start_servers: Any, tmp_path: Path) -> None:
    delayed = {name: entry("--delay", "0.4") for name in "abcde"}
    before = time.monotonic()

    mounted = await start_servers(delayed)

    assert time.monotonic() - before < 0.4 * len(delayed)
    assert len(mounted.tools) == 5


async def test_a_call_waits_for_a_start_in_progress(mount_servers: Any) -> None:
    mounted = await mount_servers({"s": entry("--tools", "crash", "echo", "--delay", "0.3")}, restart_delay=0)
    await mounted.prompt()
    await mounted.call("crash")
    await mounted.until(lambda: mounted.status()["state"] == "starting")

    result = await mounted.call("echo", text="patient")

    assert result.output == "patient"


async def test_a_start_that_takes_longer_than_its_limit_has_failed(start_servers: Any, started: Any) -> None:
    mounted = await start_servers({"s": entry("--delay", "60")}, start_limit=0.2, max_restarts=0, stop_timeout=0.5)

    assert mounted.status()["state"] == "failed"
    assert mounted.status()["last_error"] == "the server did not start within 0.2 seconds"
    assert started.pids() == []


async def test_two_mounts_share_the_list_of_servers_and_are_started_each_for_itself(mount_servers: Any) -> None:
    mounted = await mount_servers({"s": entry()})
    cleanup = await mount(mounted.coordinator, {"servers": {"t": entry()}})

    await mounted.prompt()

    assert [server.name for server in mounted.coordinator.get_capability("mcp.servers")] == ["s", "t"]
    assert set(mounted.tools) == {"mcp_s_echo", "mcp_t_echo"}
    await cleanup()
    assert set(mounted.tools) == {"mcp_s_echo"}
    assert (await mounted.call("echo")).success


async def test_one_broken_server_does_not_keep_the_others_from_working(start_servers: Any, complaints: Any) -> None:
    broken = {"command": "no-such-program-anywhere"}
    mounted = await start_servers({"broken": broken, "away": entry(cwd="/no/such/directory"), "s": entry()})

    assert (await mounted.call("echo", text="fine")).output == "fine"
    states = [mounted.status(name)["state"] for name in ("broken", "away", "s")]
    assert states == ["failed", "failed", "ready"]
    assert "no-such-program-anywhere" in mounted.status("broken")["last_error"]
    assert "/no/such/directory" in mounted.status("away")["last_error"]
    assert len(complaints()) == 2
    assert [(one["attempt"], one["retry_in_s"]) for one in mounted.told("server_failed")] == [(1, None)] * 2


async def test_a_cancelled_prompt_does_not_stop_the_start(mount_servers: Any) -> None:
    mounted = await mount_servers({"s": entry("--delay", "0.2")})
    prompting = asyncio.create_task(mounted.prompt())
    await asyncio.sleep(0.05)

    prompting.cancel()

    await asyncio.gather(prompting, return_exceptions=True)
    await mounted.until(lambda: "mcp_s_echo" in mounted.tools)


async def test_a_server_of_no_common_revision_is_not_tried_again(start_servers: Any, tmp_path: Path) -> None:
    starts = tmp_path / "starts"

    mounted = await start_servers({"s": entry("--revision", "1999-01-01", "--starts", str(starts))})

    assert mounted.status()["state"] == "failed"
    assert "1999-01-01" in mounted.status()["last_error"]
    assert len(starts.read_text().split()) == 1


async def test_a_foreign_tool_stays_when_the_module_goes(mount_servers: Any) -> None:
    mounted = await mount_servers({"s": entry()})
    await mounted.prompt()
    foreign = MockTool("mcp_s_echo")
    await mounted.coordinator.mount("tools", foreign, name="mcp_s_echo")

    await mounted.cleanup()

    assert mounted.tools == {"mcp_s_echo": foreign}


LOOP_WATCH = """
import asyncio, json, sys, threading, time
sys.path[:0] = json.loads(sys.argv[1])
from amplifier_core.testing import MockCoordinator
from amplifier_module_tool_mcp import mount

imported_here = set()

class Watch:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is threading.main_thread():
            imported_here.add(name.partition(".")[0])

sys.meta_path.insert(0, Watch())

async def main():
    longest = 0.0
    async def beat():
        nonlocal longest
        last = time.thread_time()  # of this thread alone: what it computes between two beats holds up everybody
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            longest, last = max(longest, now - last), now
    beating = asyncio.create_task(beat())
    coordinator = MockCoordinator()
    cleanup = await mount(coordinator, {"servers": json.loads(sys.argv[2])})
    imported_here.clear()
    await coordinator.hooks.emit("prompt:submit", {"prompt": "go"})
    tool = coordinator.get("tools")["mcp_s_echo"]
    results = await asyncio.gather(*(tool.execute({}) for _ in range(20)))
    await cleanup()
    beating.cancel()
    print(json.dumps([longest, sorted(imported_here & {"mcp", "mcp_types", "anyio", "httpx2", "jsonschema"}),
        all(result.success for result in results)]))

asyncio.run(main())
"""


async def test_the_event_loop_is_never_held_up_not_even_by_the_first_start() -> None:
    paths = json.dumps([str(MODULE), str(MODULE.parents[1] / "src")])
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LOOP_WATCH, paths, json.dumps({"s": entry()}), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await program.communicate()

    longest_s, imported_on_the_loop, is_complete = json.loads(printed)
    assert is_complete
    assert imported_on_the_loop == []
    assert longest_s < 0.05
