"""What is left of a session whose process was killed, and whether it is what it should be."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crashing_sessions import open_home

from amplifier_core.utils.tool_messages import Call, calls_in, results_in
from amplifierd.home import Home
from amplifierd.sessions.conversation.interruption import RepairedCall, RepairReport
from amplifierd.sessions.session import Session

Event = Mapping[str, Any]

_TOKEN = re.compile(r"[a-z]+\d+t\d+\S*\d")
_RECENT_S = 1.0


@dataclass(frozen=True)
class Crash:
    """What had been shown when a process was killed, and when that was."""

    shown: Sequence[Event]
    killed_at: float

    def of(self, session_id: str, name: str) -> list[Event]:
        return [event for event in self.shown if event["event"] == name and event.get("session_id") == session_id]


class Evidence:
    """The sessions of a folder after a crash. `known` are those that an earlier look found whole."""

    def __init__(self, folder: Path, crash: Crash, known: frozenset[str]) -> None:
        self.folder, self.crash, self._known = folder, crash, known
        self.home: Home = open_home(folder)
        self.states: Counter[str] = Counter()

    async def check(self, session_id: str) -> list[str]:
        """Resume the session and its children, and see that nothing is lost, done twice or left open."""
        assert not (self.folder / "complaints.txt").exists(), (self.folder / "complaints.txt").read_text()
        begun = Counter(line for line in self._runs() if line.startswith("begin"))
        assert not [line for line, count in begun.items() if count > 1], "a tool ran twice"
        tree = [record.session_id for record in self.home.sessions.list(root_session_id=session_id, limit=500).sessions]
        if session_id not in self._ids():
            assert not self.crash.of(session_id, "user_message:saved"), "what was shown is gone"
            return []
        looked_at = [session_id, *sorted({*tree} - {session_id} - self._known)]
        before = {name: self._interrupted(name) for name in looked_at}
        for number, name in enumerate(looked_at):
            report = await self._resume(session_id, name, through_parent=number % 2 == 1)
            self._check_repair(name, before[name], report)
            self._check_shown(name)
            self._check_counts(name)
        self._check_numbers({*tree, session_id})
        await self._check_tree(session_id, {*tree, session_id})
        return looked_at

    def _ids(self) -> set[str]:
        return {record.session_id for record in self.home.sessions.list(limit=1000).sessions}

    # --- resuming

    async def _resume(self, root: str, session_id: str, *, through_parent: bool) -> RepairReport:
        if through_parent and session_id != root:
            async with self.home.sessions.resume(root) as session:
                await self._ask_child(session, session_id)
            reports = [e for e in self.home.sessions.events(session_id) if e["event"] == "session:repaired"]
            report = _report(reports[-1]["data"]) if reports else RepairReport(session_id)
        else:
            async with self.home.sessions.resume(session_id) as session:
                report = session.repaired
        told = [event for event in self.home.sessions.events(session_id) if event["event"] == "session:repaired"]
        async with self.home.sessions.resume(session_id) as again:
            assert not again.repaired, "a repair was reported twice"
        after = [event for event in self.home.sessions.events(session_id) if event["event"] == "session:repaired"]
        assert after == told
        return report

    async def _ask_child(self, session: Session, child: str) -> None:
        resume = session.runner.kernel.session.coordinator.get_capability("session.resume")
        answer = await resume(child, "quick0t0: ")
        assert answer["status"] == "success", answer

    # --- receipts

    def _interrupted(self, session_id: str) -> dict[str, tuple[str, Call]]:
        """Return the calls of the last answer that have no result, each with the state that the files tell."""
        messages, events = self.home.sessions.messages(session_id), self.home.sessions.events(session_id)
        asking = [index for index, message in enumerate(messages) if calls_in(message)]
        if not asking:
            return {}
        answered = {result.call_id for message in messages[asking[-1] :] for result in results_in(message) or ()}
        answers = [index for index, event in enumerate(events) if event["event"] == "response:stored"]
        recent = events[answers[-1] :] if answers else []
        retries = {e["data"]["tool_call_id"]: e["data"]["retry"] for e in recent if e["event"] == "tool:intent"}
        done = {e["data"]["tool_call_id"] for e in recent if e["event"] == "tool:outcome"}
        found = {}
        for call in calls_in(messages[asking[-1]]):
            if call.id in answered:
                continue
            by_retry = {None: "not_begun", "safe": "safe", "check": "checked", "never": "unknown"}
            found[call.id] = ("done" if call.id in done else by_retry[retries.get(call.id)], call)
        return found

    def _check_repair(self, session_id: str, before: Mapping[str, tuple[str, Call]], report: RepairReport) -> None:
        said = {call.tool_call_id: call.state for call in report.calls}
        assert {call_id: state for call_id, (state, _) in before.items()}.items() <= said.items(), (before, report)
        messages, runs = self.home.sessions.messages(session_id), set(self._runs())
        for call_id, (state, call) in before.items():
            self.states[state] += 1
            content = next(m["content"] for m in reversed(messages) if m.get("tool_call_id") == call_id)
            token = _token(call)
            if token is None:
                continue
            if state == "not_begun":
                assert f"begin {token}" not in runs, f"{call} ran, and is said not to have begun"
            if state == "done" and call.name in ("look", "note", "send"):
                assert f"end {token}" in runs, f"{call} is said to be done"
                assert content == f"{call.name} {token} done"
            if state == "checked":
                is_sent = (self.folder / "work/outbox" / token).exists()
                assert content == ("sent" if is_sent else "not sent")

    # --- what was shown

    def _check_shown(self, session_id: str) -> None:
        messages = self.home.sessions.messages(session_id)
        ids = {message["id"] for message in messages}
        texts = [_text(message) for message in messages if message["role"] == "assistant"]
        for event in self.crash.of(session_id, "user_message:saved"):
            assert event["data"]["message_id"] in ids, "a prompt that was shown is lost"
        for event in self.crash.of(session_id, "assistant_message:complete"):
            assert event["data"]["content"] in texts, "an answer that was shown is lost"
        pieces: dict[str, list[Event]] = {}
        for event in self.crash.of(session_id, "llm:stream_block_delta"):
            pieces.setdefault(event["data"]["request_id"], []).append(event)
        for streamed in pieces.values():
            seen = "".join(e["data"]["text"] for e in streamed if e["at"] < self.crash.killed_at - _RECENT_S).strip()
            assert any(text.startswith(seen) for text in texts), f"shown and lost: {seen!r} of {texts}"
        for message in messages:
            if (message.get("metadata") or {}).get("partial"):
                whole = " ".join(f"{_text(message).split('-')[0]}-word{index}" for index in range(12))
                assert whole.startswith(_text(message).strip()), message

    # --- what was counted

    def _check_counts(self, session_id: str) -> None:
        events, record = self.home.sessions.events(session_id), self.home.sessions.get(session_id)
        names = Counter(event["event"] for event in events)
        ends = names["execution:done"], names["user_message:saved"]
        assert ends[0] >= ends[1], (
            "a turn was begun and never ended"
        )  # of one that just begun the prompt alone is there
        stored = [event for event in events if event["event"] == "response:stored"]
        tokens = sum(event["data"]["usage"]["total_tokens"] for event in stored)
        used = record.usage or {"tokens": {"total": 0}, "tool_calls": 0}
        assert (used["tokens"]["total"], used["tool_calls"]) == (tokens, names["tool:intent"]), (used, names)
        messages = self.home.sessions.messages(session_id)
        assert record.message_count == len(messages)
        assert not messages or record.turn_count == messages[-1]["turn"]
        open_calls = [call for message in messages for call in calls_in(message)]
        assert len(open_calls) == sum(len(results_in(message) or ()) for message in messages)

    def _check_numbers(self, tree: set[str]) -> None:
        numbers = [event["seq"] for name in tree for event in self.home.sessions.events(name)]
        assert len(numbers) == len(set(numbers)), "two events have one number"
        for name in tree:
            own = [event["seq"] for event in self.home.sessions.events(name)]
            assert own == sorted(own)

    async def _check_tree(self, root: str, tree: set[str]) -> None:
        members = [self.home.sessions.get(name).usage for name in tree]
        total = sum(usage["tokens"]["total"] for usage in members if usage)
        async with self.home.sessions.resume(root) as session:
            assert session.runner.tree.budget.used.tokens.total == total

    def _runs(self) -> list[str]:
        return (self.folder / "work/runs.txt").read_text().splitlines()


def _report(data: Mapping[str, Any]) -> RepairReport:
    return RepairReport(data["session_id"], tuple(RepairedCall(**call) for call in data["calls"]))


def _token(call: Call) -> str | None:
    given = call.arguments.get("token") or call.arguments.get("command")
    found = _TOKEN.search(str(given)) if given else None
    return found.group() if found else None


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(block.get("text") or "" for block in content or () if isinstance(block, dict))
