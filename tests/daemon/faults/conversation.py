"""A session of a daemon with which things go wrong, and what has to hold of it afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from hurt_daemon import HurtDaemon, until

MODULES = Path(__file__).parents[2] / "stand_ins/worker_modules"
FAULTS = {"module": "tool-faults", "source": str(MODULES / "tool-faults")}
PROMPT = "misbehave"


@dataclass
class Conversation:
    """A session whose model calls the faulty tool when it is told to misbehave, and answers "Done." otherwise."""

    daemon: HurtDaemon
    session_id: str
    folder: Path

    @classmethod
    def begin(cls, daemon: HurtDaemon, name: str, fault: str = "wait", **arguments: Any) -> Conversation:
        """Create a session and run a first turn, which has to be there whatever happens later."""
        folder = daemon.folder(name)
        call = {"name": "fault", "arguments": {"fault": fault, **arguments}}
        script = [{"tool_calls": [call], "when": {"contains": PROMPT}}, "Done."]
        provider = {"script": script, "on_exhausted": "canned", "tool_trigger": None}
        plan = {
            "session": {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}},
            "providers": [{"module": "provider-mock", "config": provider}],
            "tools": [FAULTS],
            "hooks": [],
            "agents": {},
        }
        created = daemon.client().post("/sessions", json={"mount_plan": plan, "working_dir": str(folder)})
        assert created.status_code == 201, created.text
        conversation = cls(daemon, created.json()["session_id"], folder)
        assert conversation.run("the first words").status_code == 200
        return conversation

    def run(self, prompt: str = "Go on.", **more: Any) -> httpx2.Response:
        path = f"/sessions/{self.session_id}/execute"
        return self.daemon.client().post(path, json={"prompt": prompt, **more})

    def submit(self, prompt: str, *, key: str | None = None) -> httpx2.Response:
        """Run a prompt without waiting for it."""
        path = f"/sessions/{self.session_id}/execute/stream"
        headers = {"Idempotency-Key": key} if key else {}
        return self.daemon.client().post(path, json={"prompt": prompt}, headers=headers)

    def misbehave(self, *, key: str | None = None) -> str:
        """Have the tool called, and wait until it runs; returns the id of the turn."""
        answer = self.submit(PROMPT, key=key)
        assert answer.status_code == 202, answer.text
        until((self.folder / "begun").exists)
        return str(answer.json()["correlation_id"])

    def done(self, correlation_id: str) -> dict[str, Any]:
        """Wait for the end of a turn, and return what was told of it."""
        found: list[dict[str, Any]] = []

        def look() -> bool:
            found[:] = [one["data"] for one in self._ends() if one["correlation_id"] == correlation_id]
            return bool(found)

        until(look)
        return found[0]

    def ends(self) -> list[dict[str, Any]]:
        """Return what was told of the end of every turn."""
        return [one["data"] for one in self._ends()]

    def _ends(self) -> list[dict[str, Any]]:
        return self.told("execution:done")

    def shown(self) -> dict[str, Any]:
        """Return what is said about the session."""
        shown: dict[str, Any] = self.daemon.client().get(f"/sessions/{self.session_id}").json()
        return shown

    def told(self, name: str) -> list[dict[str, Any]]:
        """Return the stored events of a name."""
        path, wanted = f"/sessions/{self.session_id}/events", {"event_type": name}
        found: list[dict[str, Any]] = self.daemon.client().get(path, params=wanted).json()["events"]
        return found

    def prompts(self) -> list[str]:
        messages = self.daemon.client().get(f"/sessions/{self.session_id}/messages").json()["messages"]
        return [one["content"] for one in messages if one["role"] == "user"]

    def check(self) -> None:
        """The daemon answers, what was said is there, and the next turn works."""
        assert httpx2.get(f"{self.daemon.url}/health").json()["status"] == "healthy"
        before = self.prompts()
        assert before[0] == "the first words"
        answer = self.run("Go on.", auto_resume=True)
        assert answer.status_code == 200, answer.text
        assert self.prompts() == [*before, "Go on."]
        stored = (
            self.daemon.client().get(f"/sessions/{self.session_id}/events", params={"limit": 1000}).json()["events"]
        )
        numbers = [one["seq"] for one in stored]
        assert numbers == sorted(set(numbers))
