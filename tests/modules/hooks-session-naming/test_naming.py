"""How a session gets its name, and who may not take it away."""

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_module_hooks_session_naming import mount
from amplifier_module_hooks_session_naming.naming import read_answer

from amplifier_core.testing import EventRecorder, MockContextManager, MockCoordinator, wait_for

ANSWER = {"action": "set", "name": "Milk and bread", "description": "Shopping."}


class Record:
    def __init__(self, **fields: Any) -> None:
        self.fields, self.is_root = fields, True

    def get(self, name: str) -> Any:
        return self.fields.get(name)

    async def set(self, expected: Any = None, **changes: Any) -> bool:
        if any(self.get(name) != value for name, value in (expected or {}).items()):
            return False
        self.fields |= changes
        return True


class Provider:
    name = "acme"

    def __init__(self, *answers: Any) -> None:
        self.answers, self.requests = list(answers), list[Any]()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def complete(self, request: Any, **options: Any) -> Any:
        self.requests.append((request, options))
        await self.may_answer.wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(content=[{"type": "text", "text": answer}])


class Session:
    def __init__(self, *answers: Any, **fields: Any) -> None:
        self.coordinator = MockCoordinator()
        self.record, self.provider = Record(**fields), Provider(*answers)
        self.recorder = EventRecorder()
        for event in ("set", "deferred", "timeout", "error"):
            self.coordinator.hooks.register(f"session-naming:{event}", self.recorder.record, name="recorder")

    async def begin(self, **config: Any) -> "Session":
        messages = [{"role": "user", "content": "Buy  milk\nand bread"}, {"role": "assistant", "content": "Done."}]
        await self.coordinator.mount("context", MockContextManager(messages))
        await self.coordinator.mount("providers", self.provider, name="acme")
        self.coordinator.register_capability("session.record", self.record)
        await mount(self.coordinator, config)
        return self

    async def turn(self) -> None:
        """End a turn, and wait for what that begins."""
        before = len(self.recorder.events)
        await self.coordinator.hooks.emit("prompt:complete", {})
        await wait_for(lambda: len(self.recorder.events) > before, timeout=0.3)
        self.record.fields["turn_count"] = self.record.fields.get("turn_count", 0) + 1

    @property
    def events(self) -> list[str]:
        return [event.removeprefix("session-naming:") for event, _ in self.recorder.events]


async def test_the_second_turn_names_the_session() -> None:
    session = await Session(json.dumps(ANSWER)).begin(model_role=None)

    await session.turn()
    first = dict(session.record.fields)
    await session.turn()

    assert "name" not in first
    fields = session.record.fields
    assert (fields["name"], fields["description"]) == ("Milk and bread", "Shopping.")
    assert fields["name_generated_at"] == fields["description_updated_at"]
    ((request, options),) = session.provider.requests
    assert (request.max_output_tokens, request.metadata["stream"], options) == (
        256,
        False,
        {"extended_thinking": False},
    )
    assert "user: Buy  milk" in request.messages[0].content


async def test_a_name_that_a_person_gives_meanwhile_stays() -> None:
    session = await Session(json.dumps(ANSWER), turn_count=1).begin(model_role=None)
    session.provider.may_answer.clear()

    await session.coordinator.hooks.emit("prompt:complete", {})
    session.record.fields["name"] = "Mine"
    session.provider.may_answer.set()
    await session.coordinator.hooks.emit("session:end", {})

    assert session.record.fields == {"turn_count": 1, "name": "Mine"}


async def test_the_description_is_brought_up_to_date_and_the_name_stays() -> None:
    session = await Session(json.dumps(ANSWER), name="Mine", turn_count=4).begin(model_role=None)

    await session.turn()

    assert (session.record.fields["name"], session.record.fields["description"]) == ("Mine", "Shopping.")


@pytest.mark.parametrize("action", ["defer", "keep"])
async def test_a_model_may_wait(action: str) -> None:
    session = await Session(json.dumps({"action": action}), turn_count=1).begin(model_role=None)

    await session.turn()

    assert (session.record.get("name"), session.events) == (None, ["deferred"])


async def test_after_some_failures_the_first_prompt_is_the_name() -> None:
    session = await Session(RuntimeError("down"), "no json", turn_count=1).begin(model_role=None, max_retries=1)

    await session.turn()
    await session.turn()

    assert session.events == ["error", "error", "set"]
    assert session.record.get("name") == "Buy milk and bread"


async def test_where_there_is_no_model_the_first_prompt_is_the_name() -> None:
    session = Session(turn_count=1)
    session.provider.is_offline = True  # type: ignore[attr-defined]
    await session.begin(max_name_length=9)

    await session.turn()

    assert (session.record.get("name"), session.provider.requests) == ("Buy milk…", [])


class Roles:
    def __init__(self, found: Any) -> None:
        self.found = found

    async def resolve(self, role: str) -> Any:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


async def test_the_role_chooses_the_model_and_one_that_cannot_be_resolved_skips_the_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    served = await Session(json.dumps(ANSWER), turn_count=1).begin()
    served.coordinator.register_capability("model_role_resolver", Roles([{"provider": "acme", "model": "small"}]))
    broken = await Session(turn_count=1).begin()
    broken.coordinator.register_capability("model_role_resolver", Roles(RuntimeError("no")))
    unserved = await Session(*[json.dumps({"action": "defer"})] * 2, turn_count=1).begin()
    unserved.coordinator.register_capability("model_role_resolver", Roles([]))

    for session in (served, broken, unserved, unserved):
        await session.turn()

    assert served.provider.requests[0][0].model == "small"
    assert broken.provider.requests == []
    assert unserved.provider.requests[0][0].model is None
    assert len([r for r in caplog.records if "first provider" in r.message and r.levelno == logging.WARNING]) == 1


async def test_sessions_of_agents_are_not_named() -> None:
    session = await Session(turn_count=5).begin()
    session.record.is_root = False

    await session.turn()

    assert session.provider.requests == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('Sure: {"action": "set", "name": "A"} done', "A"),
        ('```json\n{"action": "set", "name": "A", "description": "B c', "A"),
        ('{"action": "set", "name": "A",', "A"),
    ],
)
def test_an_answer_is_read_even_if_it_was_cut(text: str, name: str) -> None:
    assert (read_answer(text) or {}).get("name") == name


def test_what_is_no_json_is_no_answer() -> None:
    assert read_answer("A name") is None
