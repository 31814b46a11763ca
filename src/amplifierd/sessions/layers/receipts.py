"""Receipts of tool calls: what was about to run is on the disk before it runs, what came of it afterwards.

The outcome is an event, and events are published: it is masked. Where that changed it, the whole outcome is kept as a
part of the session, under the random name that the event has as `receipt`; nothing publishes it. `whole_outcome`
reads it back for those that go on from there: a repair, and a replay.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from amplifier_core import ToolResult
from amplifier_core.boundary import Boundary, settle
from amplifier_core.exceptions import describe
from amplifier_core.utils import json_safe
from amplifier_core.utils.tool_messages import Call
from amplifier_kit.messages.conversation import as_tool_result, result_content
from amplifier_system.tasks import run_to_end
from amplifierd.exceptions import SessionError
from amplifierd.sessions.secret_values import SecretValues

from .calls import CallLayer, ToolCall, ToolStep

logger = logging.getLogger(__name__)

INTENT, OUTCOME = "tool:intent", "tool:outcome"
RECEIPT = "receipt"

_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode
_TURN_BEGUN, _ANSWERED = "user_message:saved", "response:stored"
_CHECK_S = 30.0

Retry = Literal["safe", "check", "never"]
CallState = Literal["done", "not_begun", "safe", "checked", "unknown"]
Write = Callable[..., Awaitable[Any]]
PutParts = Callable[[Mapping[str, bytes]], Awaitable[None]]
ReadPart = Callable[[str], Awaitable[bytes | None]]
Check = Callable[[str, dict[str, Any], str], Awaitable[Any]]
"""Asks the tool of that name about the call with that input and id; None when it does not know."""

NOT_RUN = "not run: the session was interrupted before this call began"
SAFE = "interrupted before it finished; it is safe to repeat"
UNKNOWN = "interrupted; it is not known whether it took effect"


class Receipts(CallLayer):
    """Writes an intent before each tool call and its outcome after it.

    `write` stores an event and publishes it, `write_soon` together with what else happens at that moment; `put_parts`
    keeps what is not published. `take_back` hears of a call that never began, since its intent could not be stored.
    """

    def __init__(
        self,
        write: Write,
        write_soon: Write,
        put_parts: PutParts,
        secrets: SecretValues,
        take_back: Callable[[], None] = lambda: None,
    ) -> None:
        self._write, self._write_soon, self._put_parts, self._secrets = write, write_soon, put_parts, secrets
        self._take_back = take_back

    async def tool_call(self, call: ToolCall, proceed: ToolStep) -> Any:
        intent = {
            "tool_call_id": call.tool_call_id,
            "tool_name": call.name,
            "input_hash": input_hash(call.input),
            "retry": retry_of(call.tool, call.input),
        }
        await self._write(INTENT, intent, lasting=True, unstored=self._take_back)
        try:
            returned = await proceed(call)
        except asyncio.CancelledError:
            await self._keep(call, ToolResult(success=False, error={"message": "cancelled"}))
            raise
        except Exception as error:
            await self._keep(call, ToolResult(success=False, error={"message": describe(error)}))
            raise
        await self._keep(call, as_tool_result(returned))
        return returned

    async def _keep(self, call: ToolCall, result: ToolResult) -> None:
        """Write down what a tool returned, which counts whatever becomes of that.

        The tool did what it did: neither a cancellation meanwhile nor a store that is away undoes it.
        """
        stored = {"success": result.success, "output": json_safe(result.output), "error": json_safe(result.error)}
        content = json_safe(result_content(result))
        outcome = {"tool_call_id": call.tool_call_id, "success": result.success, "result": stored, "content": content}
        shown = self._secrets.scrubbed(outcome)
        if shown == (whole := self._secrets.masked(outcome)):
            await self._write_soon(OUTCOME, shown)
            return
        try:
            await run_to_end(self._keep_whole(whole, {**shown, RECEIPT: f"receipt_{uuid.uuid4().hex}"}))
        except asyncio.CancelledError:
            logger.debug("call %s was cancelled after its tool had returned", call.tool_call_id)
        except (SessionError, OSError) as error:
            logger.warning("what tool %r returned to call %s is not stored: %s", call.name, call.tool_call_id, error)

    async def _keep_whole(self, whole: Mapping[str, Any], shown: Mapping[str, Any]) -> None:
        """Keep a result of which not all may be shown."""
        await self._put_parts({shown[RECEIPT]: json.dumps(whole).encode()})
        await self._write_soon(OUTCOME, shown)


async def whole_outcome(outcome: Mapping[str, Any], read_part: ReadPart | None) -> Mapping[str, Any]:
    """Return an outcome as the tool returned it, where a receipt has more than the stored event shows."""
    name = outcome.get(RECEIPT)
    part = await read_part(name) if read_part is not None and isinstance(name, str) else None
    whole = json.loads(part) if part is not None else None
    return whole if isinstance(whole, dict) else outcome


@dataclass(frozen=True)
class Receipt:
    """What is known of one call."""

    tool_name: str
    retry: Retry = "never"
    outcome: Mapping[str, Any] | None = None


@dataclass
class ReceiptBook:
    """The receipts of a session. Providers may use the id of a call again, so the turn of a call counts as well."""

    _receipts: dict[tuple[int, str], Receipt] = field(default_factory=dict)
    _turn: int = 0

    @classmethod
    def of(cls, events: Iterable[Mapping[str, Any]]) -> ReceiptBook:
        book = cls()
        for event in events:
            book.take(event)
        return book

    def take(self, stored: Mapping[str, Any]) -> None:
        """Take in the next event of the session."""
        event, data = stored.get("event"), stored.get("data")
        if not isinstance(data, Mapping):
            return
        key = (self._turn, str(data.get("tool_call_id")))
        if event == _TURN_BEGUN:
            self._turn = _whole(data.get("turn"))
        elif event == _ANSWERED:  # the calls of earlier answers have their results
            self._receipts = {known: receipt for known, receipt in self._receipts.items() if known[0] != self._turn}
        elif event == INTENT:
            retry = data.get("retry")
            self._receipts[key] = Receipt(str(data.get("tool_name")), retry if retry in ("safe", "check") else "never")
        elif event == OUTCOME and (begun := self._receipts.get(key)) is not None:
            self._receipts[key] = replace(begun, outcome=data)

    async def settle(
        self, call: Call, turn: int, check: Check | None = None, read_part: ReadPart | None = None
    ) -> tuple[CallState, Any]:
        """Return the state of a call that was left without a result, and the content that answers it."""
        receipt = self._receipts.get((turn, call.id))
        if receipt is None:
            return "not_begun", NOT_RUN
        if receipt.outcome is not None:
            return "done", (await whole_outcome(receipt.outcome, read_part)).get("content")
        if receipt.retry == "safe":
            return "safe", SAFE
        if receipt.retry == "check" and check is not None:
            found = await check(receipt.tool_name, call.arguments, call.id)
            if found is not None:
                return "checked", json_safe(result_content(as_tool_result(found)))
        return "unknown", UNKNOWN


async def ask_tool(tools: Mapping[str, Any], name: str, input: dict[str, Any], tool_call_id: str) -> Any:
    """Ask a tool whether a call of it took effect; None when it cannot say, or not within half a minute."""
    check = getattr(tools.get(name), "check", None)
    if not callable(check):
        return None
    with Boundary(logger, "tool %r cannot say what became of call %s: %s", name, tool_call_id):
        async with asyncio.timeout(_CHECK_S):
            return await settle(check(input, tool_call_id))
    return None


def retry_of(tool: Any, input: Mapping[str, Any]) -> Retry:
    """Return what a tool declares about repeating a call; without a declaration it is not repeated."""
    declared, of_call = getattr(tool, "retry", None), getattr(tool, "retry_of", None)
    if callable(of_call):
        declared = "never"
        with Boundary(logger, "a tool cannot say whether its call may be repeated: %s"):
            declared = of_call(input)
    return declared if declared in ("safe", "check") else "never"


def input_hash(input: Mapping[str, Any]) -> str:
    text = _encode(json_safe(dict(input)))
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
