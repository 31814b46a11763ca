"""One turn: a prompt, and everything until its answer.

`Turn` is a complete agent loop. Orchestrators subclass it and override the steps in which they differ; what they
share, and what is easy to get wrong, is here: when hooks are asked and what their answers do, which events come in
which order, and that a transcript never holds a tool call without its result, however the turn ends.

A step that may be left half done is plain code. What must be finished once it is begun stands in `with self.task:`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import ClassVar

from amplifier_core import (
    ChatRequest,
    ChatResponse,
    ContextLengthError,
    ContextManager,
    HookRegistry,
    LLMError,
    LLMTimeoutError,
    Provider,
    ProviderUnavailableError,
    Tool,
    events,
)
from amplifier_core.boundary import Boundary, at_once
from amplifier_core.utils.tool_messages import Call
from amplifier_kit.messages.conversation import (
    as_response,
    as_returned,
    assistant_message,
    cancelled_content,
    has_call_blocks,
    read_calls,
    text_of,
    tool_message,
    user_message,
)
from amplifier_kit.types import Coordinator, EventData, JsonObject, Message

from .announcements import ResponseAnnouncement, by_preference, provider_error, provider_request
from .hook_points import NO_REASON, Ephemeral, HookPoints, apply_ephemerals
from .requests import RequestBuilder
from .settings import STEERING_INJECTED, LoopSettings, SteeringQueue, steering_injected
from .tool_calls import Cancellation, Outcome, ToolCalls
from .transcript import Reply, Transcript
from .turn_task import TurnTask

logger = logging.getLogger(__name__)

_WRAP_UP = (
    '<system-reminder source="orchestrator-loop-limit">\n'
    "Answer now without calling any tool: summarise what has been done so far, what was found, and what remains to be "
    "done. Do not mention this reminder.\n"
    "</system-reminder>"
)
_EXECUTION_STATUS = {"success": "completed", "incomplete": "completed", "cancelled": "cancelled", "error": "error"}


class Turn:
    """Runs one prompt, once. `answer` returns what it comes to, `fragments` yields it."""

    orchestrator: ClassVar[str]
    counts_from_one: ClassVar[bool] = False
    names_results: ClassVar[bool] = False
    last_events: ClassVar[tuple[str, ...]] = (events.ORCHESTRATOR_COMPLETE, events.EXECUTION_END)
    tool_calls_type: ClassVar[type[ToolCalls]] = ToolCalls

    def __init__(
        self,
        settings: LoopSettings,
        builder: RequestBuilder,
        prompt: str,
        context: ContextManager,
        providers: Mapping[str, Provider],
        tools: Mapping[str, Tool],
        hooks: HookRegistry,
        coordinator: Coordinator = None,
    ) -> None:
        self.settings = settings
        self.prompt = prompt
        self.providers = providers if providers is not None else {}
        self.tools = tools if tools is not None else {}
        self.coordinator = coordinator
        self.task = TurnTask()
        self.cancellation = Cancellation(coordinator)
        self.points = HookPoints(hooks, coordinator, context)
        self.transcript = Transcript(context)
        self.tool_calls = self.tool_calls_type(self.task, self.cancellation, self.points, self.tools, coordinator)
        self.status = "incomplete"
        self.iteration = 0
        self.provider_calls = 0
        self.steering = SteeringQueue()  # what is said to the turn while it runs
        self.candidates: list[tuple[str, Provider]] = []  # the providers still worth a try, best first
        self._builder = builder
        self._said: list[str] = []
        self._unsent: list[Ephemeral] = []
        self._is_accepted = False
        self._has_answered = False
        self._is_cancel_announced = False
        self._empty_replies = 0
        self._has_compacted = False

    # --- the turn as a whole

    async def answer(self) -> str:
        """Run the turn and return everything it says."""
        await self.task.run(self._run())
        return self.text

    def fragments(self) -> AsyncGenerator[str, None]:
        """Run the turn and yield what it says as it comes."""
        return self.task.stream(self._run())

    @property
    def text(self) -> str:
        """What was said so far."""
        return "".join(self._said)

    async def _run(self) -> None:
        failure: BaseException | None = None
        try:
            await self.attend()
        except GeneratorExit:  # the loop is being closed: nothing can be awaited any more
            raise
        except BaseException as exc:  # noqa: BLE001 - raised once the turn is ended properly
            failure = exc
        with self.task:
            await self._end(failure)
        self.task.end()
        if failure is not None:
            raise failure

    async def attend(self) -> None:
        """Do all there is to do between the first event and the last ones."""
        self.steering.forget_earlier()
        if self.points.reaches(events.PROMPT_SUBMIT):
            decision = await self.points.decide(events.PROMPT_SUBMIT, {"prompt": self.prompt})
            if decision.denied:
                await self.say_denied(decision.reason)
                return
            changed = decision.changed("prompt", str, self.prompt)
            self.prompt = self.prompt if changed is None else changed
        self._is_accepted = True
        await self.points.emit(events.EXECUTION_START, {"prompt": self.prompt})
        await self.transcript.add(user_message(self.prompt))
        self.candidates = self.select_providers()
        if self.candidates:
            await self.converse()
        else:
            await self.no_provider()

    async def converse(self) -> None:
        """Alternate between provider and tools until there is an answer or no round is left."""
        limit = self.settings.max_iterations
        while limit < 0 or self.iteration < limit:
            if self.must_stop():
                await self.stop_cancelled()
                return
            self.iteration += self.counts_from_one
            reply = await self.exchange()
            if reply is None or await self.follow(reply):
                return
            self.iteration += not self.counts_from_one
        if self.must_stop():
            await self.stop_cancelled()
        elif not self._has_answered:
            await self.wrap_up()

    async def follow(self, reply: Reply) -> bool:
        """Do what a reply asks for; True when that ends the turn."""
        if reply.calls:
            self._empty_replies = 0
            await self.run_tools(reply)
            return self.status == "cancelled"
        if reply.is_answer:
            self._empty_replies = 0
            await self.deliver(reply)
            return not self.goes_on()
        self._empty_replies += 1
        logger.warning("the provider answered with nothing (%d in a row)", self._empty_replies)
        return self._empty_replies >= self.settings.max_empty_responses

    def goes_on(self) -> bool:
        """True if the turn goes on although there is an answer."""
        return not self.steering.is_empty

    # --- the provider

    def select_providers(self) -> list[tuple[str, Provider]]:
        """Return the providers in the order in which they are tried."""
        return by_preference(self.providers, self.settings.default_provider)

    async def no_provider(self) -> None:
        """End a turn for which there is no provider."""
        raise RuntimeError("No provider available: mount one, for example provider-mock")

    async def exchange(self, *, is_last: bool = False) -> Reply | None:
        """Ask the provider, or the next one where that may help, and take its reply; None when the turn ends here."""
        said = len(self._said)
        while True:
            name, provider = self.candidates[0]
            try:
                request = await self.prepare(name, provider, is_last=is_last)
                if request is None:
                    return None
                self.provider_calls += 1
                response = as_response(await self.call(name, provider, request))
                self._unsent = []
                return await self.receive(name, provider, response)
            except Exception as exc:
                await self.report_provider_error(name, exc)
                if isinstance(exc, ContextLengthError) and await self._compacts():
                    continue
                if not self.fails_over(exc) or len(self._said) > said:  # what was said cannot be taken back
                    raise
                self.candidates.pop(0)

    async def _compacts(self) -> bool:
        """Leave older parts out of what the model sees, once in a turn; True if there are any."""
        if self._has_compacted:
            return False
        self._has_compacted = True
        tokens = None
        with Boundary(logger, "the conversation could not be compacted: %s"):
            tokens = await self.transcript.compact()
        if tokens is None:
            return False
        display = getattr(self.coordinator, "display_system", None)
        if callable(show := getattr(display, "show_message", None)):
            with Boundary(logger, "a message could not be shown: %s"):
                before, after = tokens
                told = (
                    f"too long for the model: older parts are left out from now on, about {before:,} → {after:,} tokens"
                )
                show(f"The conversation was {told}", "warning", self.orchestrator)
        return True

    async def prepare(self, name: str, provider: Provider, *, is_last: bool) -> ChatRequest | None:
        """Return the request for a provider, None when the turn ends here because hooks deny it."""
        if not self.steering.is_empty:
            await self._take_in_steering()
        messages = await self.transcript.view_for(provider, self.prompt)
        self._unsent += self.points.take()
        if self.points.reaches(events.PROVIDER_REQUEST):
            facts = provider_request(name, provider, messages, iteration=self.iteration, is_last=is_last)
            decision = await self.points.decide(events.PROVIDER_REQUEST, facts)
            if decision.denied:
                await self.say_denied(decision.reason)
                return None
            if decision.has_stored:
                messages = await self.transcript.view_for(provider, self.prompt)
        ephemerals = [*self.points.take(), *self.lasting_ephemerals(), *self._unsent]
        if ephemerals:
            messages = apply_ephemerals(messages, ephemerals)
        if is_last:
            messages = [*messages, user_message(_WRAP_UP)]
            await self.points.count(_WRAP_UP, events.PROVIDER_REQUEST)
        effort, timeout_s = self.settings.reasoning_effort, self.settings.timeout
        return self._builder.build(messages, self.tools, reasoning_effort=effort, timeout=timeout_s)

    async def _take_in_steering(self) -> None:
        """Store the messages that came meanwhile."""
        messages = self.steering.drain()
        for index, content in enumerate(messages, 1):
            await self.transcript.add(user_message(content))
            payload = steering_injected(self.orchestrator, content, self.iteration, len(messages) - index)
            await self.points.emit(STEERING_INJECTED, payload)

    def lasting_ephemerals(self) -> list[Ephemeral]:
        """Return ephemeral text that goes into every request of the turn."""
        return []

    async def call(self, name: str, provider: Provider, request: ChatRequest) -> ChatResponse:
        """Return the provider's response."""
        complete = getattr(provider, "complete", None)
        if not callable(complete):
            raise RuntimeError(f"provider {name!r} has no complete() method")  # noqa: TRY004 - as for no provider
        response: ChatResponse = await complete(request, **self.provider_options())
        return response

    def provider_options(self) -> JsonObject:
        return {"extended_thinking": True} if self.settings.extended_thinking else {}

    async def receive(self, name: str, provider: Provider, response: ChatResponse) -> Reply | None:
        """Announce a response and take it apart; None when the turn was meanwhile cancelled at once."""
        calls = self.read_calls(provider, response)
        announcement = ResponseAnnouncement(self.points, response)
        if self.points.reaches(events.PROVIDER_RESPONSE):
            await announcement.announce(calls, provider=name, iteration=self.iteration)
        if self.cancellation.is_immediate:
            await self.stop_cancelled()
            return None
        await self.announce_blocks(announcement)
        return Reply(response, self.read_text(response), calls)

    def read_calls(self, provider: Provider, response: ChatResponse) -> list[Call]:
        """Return the calls of a response in normal form."""
        calls = response.tool_calls
        if calls is None and has_call_blocks(response.content):
            parse = getattr(provider, "parse_tool_calls", None)
            calls = at_once(parse(as_returned(response))) if callable(parse) else None
        return read_calls(calls)

    def read_text(self, response: ChatResponse) -> str:
        """Return the text of a response."""
        return text_of(response.content)

    async def announce_blocks(self, announcement: ResponseAnnouncement) -> None:
        """Announce what a response consists of."""
        await announcement.announce_blocks()

    async def report_provider_error(self, name: str, error: Exception) -> None:
        await self.points.emit(events.PROVIDER_ERROR, provider_error(name, error))

    def fails_over(self, error: Exception) -> bool:
        """True if another provider is tried after this error."""
        may_pass = isinstance(error, ProviderUnavailableError | LLMTimeoutError | TimeoutError) or (
            isinstance(error, LLMError) and error.retryable
        )
        return self.settings.provider_failover and may_pass and len(self.candidates) > 1

    # --- answers and tools

    async def deliver(self, reply: Reply) -> None:
        """Store a final answer and say it."""
        await self.transcript.add(self._record(reply))
        if reply.text:
            self._has_answered = True
            self.status = "success"
            await self.say_answer(reply.text)

    async def say_answer(self, text: str) -> None:
        """Say an answer, as a whole or in pieces."""
        await self.say(text)

    async def say(self, text: str) -> None:
        """Make text part of the answer, and pass it to the reader of a streamed answer."""
        self._said.append(text)
        await self.task.say(text)

    async def say_denied(self, reason: str) -> None:
        await self.say(f"Operation denied: {reason or NO_REASON}")

    def assistant_message(self, reply: Reply) -> Message:
        """Return the message that records a reply."""
        return assistant_message(reply.response, reply.text, reply.calls)

    def _record(self, reply: Reply) -> Message:
        message = self.assistant_message(reply)
        self._builder.expect(message, reply.response)
        return message

    async def run_tools(self, reply: Reply) -> None:
        """Store the calls, run them, and store one result for each of them, in their order, whatever happens."""
        batch = self.tool_calls.new_batch(reply.calls)
        with self.task:
            await self.transcript.add(self._record(reply))
            interruption = await self.run_batch(batch)
            await self.transcript.add_all(self._result_message(outcome) for outcome in batch)
        if interruption is not None:
            raise interruption
        for outcome in batch:
            for injection in outcome.injections:
                await self.points.inject(injection)
        if self.must_stop():
            await self.stop_cancelled()

    async def run_batch(self, batch: list[Outcome]) -> BaseException | None:
        settings = self.settings
        return await self.tool_calls.run(batch, parallel=settings.parallel_tools, limit=settings.max_parallel_tools)

    def _result_message(self, outcome: Outcome) -> Message:
        call = outcome.call
        content = cancelled_content(call.name) if outcome.content is None else outcome.content
        return tool_message(call, content, name=call.name if self.names_results else None)

    # --- the limit

    async def wrap_up(self) -> None:
        """Ask once more, for a summary, when the rounds are used up; a failure leaves the turn without an answer."""
        reply = None
        message = "no summary could be obtained at the end of the allowed rounds: %s"
        with Boundary(logger, message, level=logging.ERROR):
            reply = await self.exchange(is_last=True)
        if reply is not None and reply.text:
            await self.deliver(Reply(reply.response, reply.text))

    # --- cancellation and the end

    def must_stop(self) -> bool:
        """True if the session asks to stop; raises a cancellation that a tool or a provider swallowed."""
        self.task.check()
        return self.cancellation.is_requested

    async def stop_cancelled(self) -> None:
        """End the turn as cancelled: a closing message after tool results, the event, the token's callbacks."""
        self.status = "cancelled"
        self.steering.clear()
        with self.task:
            await self.transcript.close()
            if not self._is_cancel_announced:
                self._is_cancel_announced = True
                await self._announce_cancel()

    async def _announce_cancel(self) -> None:
        facts = {"orchestrator": self.orchestrator, "turn_count": self.provider_calls}
        await self.points.emit(events.CANCEL_REQUESTED, {**facts, "state": self.cancellation.state})
        await self.cancellation.trigger_callbacks()
        if self.coordinator is None:
            await self.points.emit(events.CANCEL_COMPLETED, {**facts, "was_immediate": True})

    async def _end(self, failure: BaseException | None) -> None:
        """Emit the turn's last events."""
        if isinstance(failure, asyncio.CancelledError):
            await self.stop_cancelled()
        elif failure is not None:
            self.status = "error"
        elif self._is_accepted and self.status != "cancelled" and self.points.reaches(events.PROMPT_COMPLETE):
            text = self.text
            await self.points.emit(events.PROMPT_COMPLETE, {"response_preview": text[:200], "length": len(text)})
        for event in self.last_events:
            if self.points.reaches(event) and (payload := self._last_words(event)):
                await self.points.emit(event, payload)

    def _last_words(self, event: str) -> EventData | None:
        """Return what one of the last events says; None for the end of an execution that never began."""
        if event == events.ORCHESTRATOR_COMPLETE:
            return {"orchestrator": self.orchestrator, "turn_count": self.provider_calls, "status": self.status}
        return {"response": self.text, "status": _EXECUTION_STATUS[self.status]} if self._is_accepted else None
