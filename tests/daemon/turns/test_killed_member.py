"""A daemon that is killed in the middle of turns: another member goes on with its sessions, and nothing runs twice."""

import asyncio
import tempfile
from pathlib import Path

from conversation import Conversation
from hurt_daemon import hurt_daemon
from turn_bench import open_durable
from worker_bench import MODULES

from amplifierd.store.postgres.store import PostgresStore
from amplifierd.workers.live_sessions import TurnRequest


async def test_begun_turns_are_interrupted_once_and_waiting_ones_run_elsewhere(
    store_address: str, tmp_path: Path
) -> None:
    settings = {"store": store_address, "security": {"module_roots": [str(MODULES)]}}
    with hurt_daemon(Path(tempfile.mkdtemp()), **settings) as daemon:
        talks = {policy: Conversation.begin(daemon, f"on-{policy}") for policy in ("ask", "continue", "stop")}
        for policy, talk in talks.items():
            path = f"/sessions/{talk.session_id}"
            assert daemon.client().patch(path, json={"on_takeover": policy}).status_code == 200
            talk.misbehave(key=policy)
            later = {"prompt": "for later", "queue": True}
            assert daemon.client().post(f"{path}/execute/stream", json=later).json()["status"] == "queued"
        async with open_durable(tmp_path, store_address) as survivor:
            store, asked = survivor.workers.home.sessions.runtime.store, talks["ask"].session_id
            assert isinstance(store, PostgresStore)
            last = await survivor.turns.submit(asked, TurnRequest("from elsewhere", queue=True))
            (lost,) = [one for one in await store.members.list() if one.member_id != store.members.own_id]
            await asyncio.to_thread(daemon.kill, with_workers=True)
            assert await store.members.fence(lost.member_id, by_operator=True)

            assert (await survivor.workers.result(last))["turn"] == 4
            for talk in talks.values():
                await survivor.settle(talk.session_id)
            prompts = {policy: await _prompts(store, talk) for policy, talk in talks.items()}
            begun = ["the first words", "misbehave"]
            assert prompts["ask"] == [*begun, "for later", "from elsewhere"]
            assert prompts["stop"] == begun
            assert (prompts["continue"][:2], prompts["continue"][3:]) == (begun, ["for later"])
            assert "ended before the turn did" in prompts["continue"][2]
            for talk in talks.values():
                events = await store.read_events(talk.session_id)
                assert [one["event"] for one in events].count("tool:intent") == 1
                ends = [one["data"] for one in events if one["event"] == "execution:done"]
                assert [end["status"] for end in ends[:2]] == ["completed", "failed"]
                assert {end["status"] for end in ends[2:]} <= {"completed"}
                answers = [one for one in await store.read_messages(talk.session_id) if one["role"] == "tool"]
                assert [one["metadata"]["repaired"] for one in answers] == ["unknown"]
            assert (await store.read(talks["stop"].session_id)).status == "failed"

            await asyncio.to_thread(daemon.start)
            again = await asyncio.to_thread(talks["ask"].submit, "misbehave", key="ask")
            assert (again.status_code, again.headers["idempotency-repeated"]) == (202, "true")
            other = await asyncio.to_thread(talks["ask"].submit, "something else", key="ask")
            assert (other.status_code, other.json()["code"]) == (409, "idempotency-conflict")
            assert await _prompts(store, talks["ask"]) == prompts["ask"]


async def _prompts(store: PostgresStore, talk: Conversation) -> list[str]:
    return [one["content"] for one in await store.read_messages(talk.session_id) if one["role"] == "user"]
