"""Servers over HTTP: refused, killed and started again, forgotten sessions, the older transport."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from sdk_servers import HttpServer, Nursery, http_server

TOKEN = "opensesame-opensesame"


@pytest.fixture
def gated(nursery: Nursery) -> Iterator[HttpServer]:
    """A server that wants a token."""
    with http_server(nursery, token=TOKEN) as server:
        yield server


async def test_refused_access_is_one_start_and_no_other(start_servers: Any, gated: HttpServer, complaints: Any) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    refused = {protocol: gated.entry(protocol=protocol) for protocol in ("auto", "legacy")}

    mounted = await start_servers({**refused, "s": gated.entry(headers=headers)})

    assert mounted.status("s")["state"] == "ready"
    for protocol in refused:
        status = mounted.status(protocol)
        assert (status["state"], status["restarts"]) == ("failed", 0)
        assert status["last_error"] == "the server refused access (HTTP 401)"
    assert [one["retry_in_s"] for one in mounted.told("server_failed")] == [None, None]
    assert len(complaints()) == 2
    said = await mounted.call("echo", text=f"the token is {TOKEN}")
    assert said.output == "the token is [REDACTED]"


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_a_server_killed_during_a_call_is_connected_to_again_and_later_refuses(
    start_servers: Any, nursery: Nursery, protocol: str
) -> None:
    with http_server(nursery) as server:
        mounted = await start_servers({"s": server.entry(protocol=protocol)}, restart_delay=0.3, max_restarts=20)
        calling = asyncio.create_task(mounted.call("sleep", seconds=60))
        await asyncio.sleep(0.2)

        server.kill()

        assert (await calling).error["code"] == "connection_lost"
        await asyncio.to_thread(server.start)
        await mounted.until(lambda: len(mounted.told("server_started")) == 2)
        assert [one["reason"] for one in mounted.told("server_stopped")] == ["connection_lost"]
        assert (await mounted.call("echo", text="again")).output == "again"

        server.kill()
        await asyncio.to_thread(server.start, TOKEN)
        assert not (await mounted.call("echo", text="?")).success
        await mounted.until(lambda: mounted.status()["state"] in ("ready", "failed"))
        result = await mounted.call("echo", text="?")
        assert (result.error["code"], result.error["status_code"]) == ("auth_failed", 401)


async def test_a_session_that_the_server_forgot_is_begun_anew(start_servers: Any, nursery: Nursery) -> None:
    with http_server(nursery) as server:
        mounted = await start_servers({"s": server.entry(protocol="legacy")})
        server.kill()
        await asyncio.to_thread(server.start)

        lost = await mounted.call("echo", text="?")

        assert lost.error["code"] == "connection_lost"
        await mounted.until(lambda: len(mounted.told("server_started")) == 2)
        assert (await mounted.call("echo", text="new")).output == "new"


async def test_nobody_listening_is_tried_again_and_found_later(start_servers: Any, nursery: Nursery) -> None:
    with http_server(nursery) as server:
        server.kill()
        mounted = await start_servers({"s": server.entry()}, restart_delay=0.1, max_restarts=50, restart_max_delay=0.2)
        assert mounted.status()["state"] in ("backoff", "starting")
        assert mounted.told("server_failed")[0]["error"]["type"] == "ConnectError"

        await asyncio.to_thread(server.start)

        await mounted.until(lambda: "mcp_s_echo" in mounted.tools)


async def test_the_older_transport_works_and_notices_when_the_server_is_gone(
    start_servers: Any, nursery: Nursery
) -> None:
    with http_server(nursery, token=TOKEN, transport="sse") as server:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        mounted = await start_servers({"s": server.entry(headers=headers), "refused": server.entry()}, restart_delay=30)
        assert (await mounted.call("echo", text="old")).output == "old"
        assert mounted.status("refused")["last_error"] == "the server refused access (HTTP 401)"

        server.kill()

        await mounted.until(lambda: mounted.status()["state"] == "backoff")
        assert mounted.told("server_stopped")[0]["reason"] == "connection_lost"


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_allow_and_deny_hold_after_a_change_of_the_list(
    start_servers: Any, nursery: Nursery, protocol: str
) -> None:
    with http_server(nursery) as server:
        filters = {"allow": ["offer", "get_*"], "deny": ["get_secret"]}
        mounted = await start_servers({"s": server.entry(protocol=protocol, **filters)})
        assert set(mounted.tools) == {"mcp_s_offer"}

        await mounted.call("offer", names=["get_a", "get_secret", "set_a"])
        await mounted.until(lambda: mounted.told("tools_changed") != [])

        assert set(mounted.tools) == {"mcp_s_offer", "mcp_s_get_a"}
