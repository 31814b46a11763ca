"""The hook that names a session: it asks a small model beside the conversation, and nothing waits for it."""

import asyncio
import json
import logging
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from amplifier_core import ChatRequest, HookResult, Message
from amplifier_core.boundary import Boundary, TaskBoundary, emit_quietly, settle
from amplifier_core.utils.tool_messages import field_of
from amplifier_kit.config import ModuleConfig
from amplifier_kit.injection import NOTHING
from amplifier_kit.messages.conversation import text_of
from amplifier_kit.mounted_providers import find_provider, mounted_providers
from amplifier_kit.mounting import find_capability, find_mounted, hook_registry
from amplifier_system.model_choice import choose_model
from amplifier_system.tasks import start_task

MODULE_ID = "hooks-session-naming"
RECORD = "session.record"

SET, DEFERRED, TIMEOUT, ERROR = (f"session-naming:{what}" for what in ("set", "deferred", "timeout", "error"))
EVENTS = ("session-naming:set", "session-naming:deferred", "session-naming:timeout", "session-naming:error")

_PATIENCE_S = 10.0
_DRAIN_S = 2.0
_FIRST, _MIDDLE, _LAST = 3, 3, 5
_MESSAGE_CHARS = 500
_OUTPUT_TOKENS = 256

_ASK = """\
Below are parts of a conversation. Give it a name and a one-sentence description.
Answer with JSON only: {"action": "set|defer|keep", "name": "…", "description": "…"}
- set: the subject is clear. The name says it in two to six words, without quotes or a full stop; the description says \
in one sentence what the work is about.
- defer: it is too early to tell.
- keep: the present name and description still fit."""

logger = logging.getLogger(__name__)

Work = Literal["name", "description"]


class SessionNamingHook:
    """Names root sessions only, through the session's record; a name that a person gave is never replaced."""

    def __init__(self, coordinator: Any, config: dict[str, Any] | None = None) -> None:
        self._coordinator = coordinator
        read = ModuleConfig(MODULE_ID, config)
        self.enabled_events = read.strings("enabled_events", None)
        self._trigger_turn = read.integer("initial_trigger_turn", 2, minimum=1)
        self._update_turns = read.integer("update_interval_turns", 5, minimum=1)
        self._name_chars = read.integer("max_name_length", 50, minimum=1)
        self._description_chars = read.integer("max_description_length", 200, minimum=1)
        self._max_retries = read.integer("max_retries", 3, minimum=0)
        role_given = isinstance(config, Mapping) and "model_role" in config and config["model_role"] is None
        self._role = None if role_given else read.text("model_role", "fast")
        read.warn_unknown()
        self._failures = 0
        self._task: asyncio.Task[None] | None = None
        self._has_warned = False

    async def on_prompt_complete(self, event: str, data: dict[str, Any]) -> HookResult:
        """Name the session, or bring its description up to date, when it is time."""
        record = find_capability(self._coordinator, RECORD)
        if record is None or not record.is_root or (self._task is not None and not self._task.done()):
            return NOTHING
        turn = int(record.get("turn_count") or 0) + 1
        if not record.get("name") and turn >= self._trigger_turn:
            self._task = start_task(self._work(record, "name"))
        elif record.get("name") and turn % self._update_turns == 0:
            self._task = start_task(self._work(record, "description"))
        return NOTHING

    async def drain(self, event: str, data: dict[str, Any]) -> HookResult:
        """Wait for what is under way, two seconds at most."""
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task}, timeout=_DRAIN_S)
        self.stop()
        return NOTHING

    def stop(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()

    async def _work(self, record: Any, work: Work) -> None:
        with TaskBoundary(logger, "the session cannot be named: %s"):
            answer = await self._answer(record, work)
            if answer is not None:
                await self._keep(record, work, answer)

    async def _answer(self, record: Any, work: Work) -> dict[str, Any] | None:
        """Return what the model says, or a name of the first prompt where none can be asked; None: not this time."""
        messages = await self._messages()
        with Boundary(logger, "the model role %r cannot be resolved: %s", self._role) as boundary:
            found = await self._provider()
        if boundary.error is not None:
            return None
        if found is None or self._failures > self._max_retries:
            return _named_after(messages) if work == "name" else None
        provider, model = found
        try:
            async with asyncio.timeout(_PATIENCE_S):
                text = await self._ask(provider, model, _prompt(messages, record))
        except TimeoutError:
            return await self._failed(TIMEOUT, f"no answer within {_PATIENCE_S:g} seconds", work, messages)
        except Exception as error:  # noqa: BLE001 - the provider's own; it is told
            return await self._failed(ERROR, f"{type(error).__name__}: {error}", work, messages)
        answer = read_answer(text)
        if answer is None:
            return await self._failed(ERROR, "the answer is not JSON", work, messages)
        return answer

    async def _failed(self, event: str, reason: str, work: Work, messages: Sequence[str]) -> dict[str, Any] | None:
        self._failures += 1
        await self._emit(event, {"reason": reason, "attempt": self._failures})
        return _named_after(messages) if work == "name" and self._failures > self._max_retries else None

    async def _provider(self) -> tuple[Any, str | None] | None:
        """Return the provider to ask and its model; None where there is none, or only one that works without a model.

        What the resolver of roles raises comes through.
        """
        usable = {
            key: each
            for key, each in mounted_providers(self._coordinator).items()
            if getattr(each, "is_offline", False) is not True
        }
        if not usable:
            return None
        if self._role is not None:
            choice = await choose_model(self._coordinator, model_role=self._role)
            for preference in choice.preferences:
                found = find_provider(self._coordinator, preference.provider)
                if found is not None and found.key in usable:
                    return found.provider, preference.model
            if not self._has_warned:
                self._has_warned = True
                logger.warning("%s: no model serves the role %r; the first provider is asked", MODULE_ID, self._role)
        return next(iter(usable.values())), None

    async def _ask(self, provider: Any, model: str | None, prompt: str) -> str:
        request = ChatRequest(
            messages=[Message(role="user", content=prompt)],
            max_output_tokens=_OUTPUT_TOKENS,
            metadata={"stream": False, "purpose": "housekeeping"},
            model=model,
        )
        response = await settle(provider.complete(request, extended_thinking=False))
        return text_of(response.content, "\n")

    async def _keep(self, record: Any, work: Work, answer: Mapping[str, Any]) -> None:
        name, description = self._cut(answer.get("name"), self._name_chars), answer.get("description")
        description = self._cut(description, self._description_chars)
        if answer.get("action") != "set" or (work == "name" and not name):
            await self._emit(DEFERRED, {"action": answer.get("action")})
            return
        moment = datetime.now(UTC).isoformat()
        changes: dict[str, Any] = {}
        if description:
            changes |= {"description": description, "description_updated_at": moment}
        if work == "name":
            changes |= {"name": name, "name_generated_at": moment}
        expected = {"name": None} if work == "name" else None
        if changes and await record.set(expected, **changes):
            await self._emit(SET, {"name": name if work == "name" else record.get("name"), "description": description})

    async def _messages(self) -> list[str]:
        with Boundary(logger, "the conversation cannot be read: %s", level=logging.DEBUG):
            messages = await settle(find_mounted(self._coordinator, "context").get_messages())
            roles = ("user", "assistant")
            told = [(field_of(each, "role"), text_of(field_of(each, "content"), "\n").strip()) for each in messages]
            return [f"{role}: {text[:_MESSAGE_CHARS]}" for role, text in told if role in roles and text]
        return []

    async def _emit(self, event: str, data: dict[str, Any]) -> None:
        await emit_quietly(hook_registry(self._coordinator), event, data)

    @staticmethod
    def _cut(text: Any, chars: int) -> str:
        line = " ".join(text.split()) if isinstance(text, str) else ""
        return line if len(line) <= chars else f"{line[: chars - 1].rstrip()}…"


def _prompt(messages: Sequence[str], record: Any) -> str:
    """Return the question: the first messages, some from the middle, and the last ones."""
    if len(messages) > _FIRST + _MIDDLE + _LAST:
        middle = messages[_FIRST:-_LAST]
        step = len(middle) / _MIDDLE
        sampled = [middle[int(number * step + step / 2)] for number in range(_MIDDLE)]
        messages = [*messages[:_FIRST], "…", *sampled, "…", *messages[-_LAST:]]
    now = f"Present name: {record.get('name') or 'none'}\nPresent description: {record.get('description') or 'none'}"
    return "\n\n".join([_ASK, now, *messages])


def read_answer(text: str) -> dict[str, Any] | None:
    """Return the JSON in an answer, even if its end was cut off; None where there is none."""
    begin = text.find("{")
    if begin < 0:
        return None
    body = text[begin : text.rfind("}") + 1] or text[begin:]
    for attempt in (body, f'{text[begin:]}"}}', f"{text[begin:]}}}"):
        try:
            found = json.loads(attempt)
        except ValueError:
            continue
        return found if isinstance(found, dict) else None
    pairs = dict(re.findall(r'"(action|name|description)"\s*:\s*"((?:[^"\\]|\\.)*)"', text))
    return pairs or None


def _named_after(messages: Sequence[str]) -> dict[str, Any] | None:
    """Return a name that is the beginning of the first prompt."""
    first = next((text.removeprefix("user: ") for text in messages if text.startswith("user: ")), "")
    words = " ".join(first.split())
    return {"action": "set", "name": words, "description": ""} if words else None
