"""The kernel session inside a runner: how it is set up, told its history, and ended."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from amplifier_core import AmplifierSession, HookResult, ModuleCoordinator
from amplifier_core.boundary import Boundary, TaskBoundary, settle
from amplifier_core.events import PROMPT_SUBMIT, TOOL_PRE
from amplifier_core.mount_plan import MountPlan
from amplifier_core.packages import provider_name
from amplifier_foundation.mentions import ContentDeduplicator
from amplifier_foundation.prepared.session_setup import hand_down, offer_overlay, session_plan
from amplifier_foundation.session.capabilities import set_working_dir
from amplifier_kit.approval import EACH_WRITE, GATE
from amplifier_kit.concerns import LEDGER, SESSION_TAINTED
from amplifier_sessions.event_page import number_of
from amplifierd.exceptions import SteeringUnsupportedError
from amplifierd.plans.injection import inject_runtime
from amplifierd.plans.runtime_values import RuntimePlaces
from amplifierd.plans.session_policy import session_policy_for
from amplifierd.sessions.conversation.compaction import DOCUMENT as COMPACTION
from amplifierd.sessions.conversation.compaction import KeptCompaction, compact_to
from amplifierd.sessions.conversation.context_messages import DOCUMENT, ContextMessages, for_kernel
from amplifierd.sessions.conversation.interruption import REPAIRED, Remains, ends_repaired, repair
from amplifierd.sessions.conversation.transcript import RecordedContext, for_context, last_turn
from amplifierd.sessions.events.displays import EventDisplay
from amplifierd.sessions.events.journal import GO_ON, PRIORITY
from amplifierd.sessions.layers.calls import CallLayer, LayeredOrchestrator
from amplifierd.sessions.layers.receipts import ask_tool
from amplifierd.sessions.layers.uncounted_usage import TURN_DONE, brought_up, counted_until, used_in
from amplifierd.sessions.layers.usage import Usage
from amplifierd.sessions.questions.level_gate import LevelGate, with_guard
from amplifierd.store.protocol import Message
from amplifierd.trust import Trust

from .module_record import CAPABILITY, ModuleRecord
from .unread_keys import unread_keys
from .working_place import unfit_working_dir

if TYPE_CHECKING:
    from .runner import ExecutionRunner

logger = logging.getLogger(__name__)

_CLEANUP_S = 30.0
_POLICY = "session.policy"


class KernelSession:
    """One kernel session and what it was started with."""

    session: AmplifierSession

    def __init__(self, runner: ExecutionRunner) -> None:
        self.runner = runner
        self.messages: list[Message] = []
        self.load_failures: list[dict[str, Any]] = []
        self.settled: dict[str, Any] = {}
        self._import_path: AbstractContextManager[None] | None = None
        self._has_session = False
        self._context: Any = None
        self._told: ContextMessages | None = None
        self._calls: RunningCalls | None = None
        self._policy: Any = None
        self._recorded: RecordedContext | None = None

    # --- beginning

    async def load(self, plan: Mapping[str, Any]) -> None:
        """Make the session and load its modules; nothing is stored."""
        runner, runtime = self.runner, self.runner.runtime
        self.messages = await runtime.store.read_messages(runner.session_id)
        injected = await asyncio.to_thread(self._inject, plan)
        self.session = AmplifierSession(
            session_plan(injected),
            session_id=runner.session_id,
            parent_id=runner.record.parent_session_id if runner.record.created_by == "agent" else None,
            approval_system=runner.tree.approvals.system(runner.session_id),
            display_system=runner.tree.display or EventDisplay(runner.journal.write, nesting_depth=runner.depth),
            is_resumed=bool(self.messages),
        )
        self._has_session = True
        coordinator = self.session.coordinator
        await coordinator.mount("module-source-resolver", runner.setup.resolver)
        policy = self._register_capabilities(plan)
        level_gate = LevelGate(runner.permissions, coordinator)
        await runner.journal.listen(coordinator)
        self._calls = RunningCalls(coordinator)
        coordinator.hooks.register(PROMPT_SUBMIT, self._hear_prompt, priority=PRIORITY, name="session-prompt")
        coordinator.hooks.register(SESSION_TAINTED, self._hear_taint, priority=PRIORITY, name="session-taint")
        path = runner.setup.import_path()
        path.__enter__()  # until it is closed
        self._import_path = path
        with unread_keys() as unread:
            await self.session.initialize()
        level_gate.stand_before_tools()
        runner.unread_keys = tuple(dict.fromkeys(unread))
        await runner.journal.listen(coordinator)
        failures = worth_reporting(self.session.status.load_failures, injected, coordinator.get("providers") or {})
        self.load_failures = runtime.secrets.scrubbed(failures)
        await self._offer_approvals()
        self._policy = policy

    async def begin(self, layers: Sequence[CallLayer], inherited: Sequence[Message]) -> None:
        """Put the history into the context, and stand around the calls of the orchestrator."""
        runner, coordinator = self.runner, self.session.coordinator
        if self._calls is None:
            raise RuntimeError("the modules are not loaded")
        self._context = coordinator.get("context")
        prompt = await runner.setup.give_prompt(self.session, runner.working_dir)
        in_prompt = prompt.file_hashes if prompt else None
        self._told = ContextMessages(runner.setup.places, runner.runtime.settings.mentions, self._policy, in_prompt)
        await self._install_history(inherited)
        await self._tell_guard(self._told.entries)
        self._recorded = RecordedContext(self._context, runner.transcript)
        await coordinator.mount("context", self._recorded)
        orchestrator = coordinator.get("orchestrator")
        await coordinator.mount(
            "orchestrator", LayeredOrchestrator(orchestrator, coordinator, layers, self._calls.find)
        )

    async def _hear_prompt(self, event: str, data: dict[str, Any]) -> HookResult:
        if isinstance(prompt := data.get("prompt"), str):
            self.runner.transcript.expect(prompt)
        return GO_ON

    async def _hear_taint(self, event: str, data: dict[str, Any]) -> HookResult:
        await self.runner.note_taint()
        return GO_ON

    def take_over_taint(self, is_tainted: bool) -> bool:
        """Remind the guard that the session is stored as tainted; returns whether it is, as one of its tree may be."""
        ledger = self.session.coordinator.get_capability(LEDGER)
        if is_tainted and callable(getattr(ledger, "taint", None)):
            ledger.taint()
        return is_tainted or getattr(ledger, "is_tainted", False) is True

    def _inject(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        runner, runtime = self.runner, self.runner.runtime
        paths = runtime.paths
        session_dir = runtime.store.workspace(runner.session_id)
        places = RuntimePlaces(
            working_dir=runner.working_dir,
            session_dir=session_dir,
            sessions_dir=session_dir.parent,
            approvals_file=paths.logs / "approvals.jsonl",
        )
        injected, warnings = inject_runtime(
            plan,
            profile_id=runner.setup.profile_id,
            places=places,
            environment=runtime.environment,
            find_key=runtime.find_key,
            resolver=runner.setup.resolver,
            foreign=runtime.foreign_values(runner.setup),
        )
        if runner.permissions.level is not None:
            injected = with_guard(injected)
        runtime.secrets.add_those_of(injected)
        for warning in warnings:
            logger.warning("session %s: %s", runner.session_id, warning)
        return injected

    def _register_capabilities(self, plan: Mapping[str, Any]) -> Any:
        runner, coordinator = self.runner, self.session.coordinator
        set_working_dir(coordinator, runner.working_dir)
        coordinator.register_capability("session.spawn", runner.children.spawn)
        coordinator.register_capability("session.resume", runner.children.resume)
        coordinator.register_capability("session.partial", runner.children.partial)
        coordinator.register_capability("mention_resolver", runner.setup.places.resolver())
        coordinator.register_capability("mention_deduplicator", ContentDeduplicator())
        coordinator.register_capability("session_manager", runner.runtime)
        coordinator.register_capability("project.is_trusted", Trust(runner.runtime.paths).is_trusted_as_it_is)
        coordinator.register_capability(CAPABILITY, ModuleRecord(runner))
        if runner.self_delegation_depth > 0:
            coordinator.register_capability("self_delegation_depth", runner.self_delegation_depth)
        offer_overlay(self.session, runner.setup.bundle)
        routing = runner.runtime.settings.routing
        told = {"matrix": routing.matrix, "overrides": routing.overrides}
        coordinator.register_capability("session.routing", {name: value for name, value in told.items() if value})
        coordinator.register_capability("redaction.scrub", runner.runtime.secrets.scrubbed)
        build, paths = runner.setup.build, runner.runtime.paths
        if reason := unfit_working_dir(runner.working_dir, paths):
            coordinator.register_capability(EACH_WRITE, reason)
        workspace = runner.runtime.store.workspace(runner.session_id)
        policy = session_policy_for(plan, paths=paths, working_dir=runner.working_dir, build=build, workspace=workspace)
        coordinator.register_capability(_POLICY, policy)
        if runner.parent is not None:
            hand_down(runner.parent.kernel.session, self.session)
            coordinator.register_capability(_POLICY, coordinator.get_capability(_POLICY).opening(workspace))
        return coordinator.get_capability(_POLICY)

    async def _offer_approvals(self) -> None:
        """Hand a guard with rules of its own the queue that stands behind every other question."""
        register = self.session.coordinator.get_capability("approval.register_provider")
        if callable(register):
            with TaskBoundary(logger, "the guard takes no approval provider: %s"):
                await settle(register(self.runner.tree.approvals.provider(self.runner.session_id)))

    # --- history

    async def _install_history(self, inherited: Sequence[Message]) -> None:
        runner, messages = self.runner, self._known
        store = runner.runtime.store
        messages.restore(await store.read_document(runner.session_id, DOCUMENT))
        runner.transcript.install(self.messages)
        runner.transcript.on_reworded = self._keep_wording
        if self.messages:
            await self._repair()
        is_new = not messages.is_begun
        if is_new:
            messages.inherit(inherited)
            setup = runner.setup
            await messages.begin(setup.instruction, source=setup.source, declared=setup.context)
        if self.messages:
            await self._install(self.messages)
        else:
            await self._add(messages.entries)
        if is_new:
            await store.put_document(self.runner.hold, DOCUMENT, messages.document())
        await self._tell_unresolved()

    async def _repair(self) -> None:
        """Make the transcript whole, then say what was done, then bring the record up to date.

        Each step sees from the files what an earlier process has done of it, so it may be killed in between.
        """
        runner, store = self.runner, self.runner.runtime.store
        last_seq = (await store.last_cursor(runner.session_id)).seq
        counted = counted_until(runner.record, last_seq)
        remains = await Remains.read(store.read_event_page, runner.session_id, counted)
        record = brought_up(runner.record, remains.events)
        check = partial(ask_tool, self.session.coordinator.get("tools"))
        read_part = partial(store.read_part, runner.session_id)
        found = await repair(
            runner.session_id, self.messages, remains, runner.transcript, check, read_part, turn_count=record.turn_count
        )
        if found.rewritten is not None:
            self.messages = list(found.rewritten)
            await store.replace_messages(runner.hold, self.messages)
        elif found.added:
            self.messages += found.added
            await store.append_messages(runner.hold, found.added, lasting=True)
        runner.transcript.install(self.messages)
        runner.repaired = found.report
        said: list[tuple[str, dict[str, Any]]] = []
        if found.report:
            said.append((REPAIRED, found.report.to_json()))
        ends = found.turn is not None and not found.turn.is_told
        is_behind = record is not runner.record
        if is_behind:
            before = runner.record.fields()
            self.settled |= {name: value for name, value in record.fields().items() if value != before.get(name)}
        counted = counted_until(record, last_seq)
        used = used_in([event for event in remains.events if number_of(event) > counted])
        if said or ends or is_behind or used != Usage():
            runner.budget.used = Usage.from_json(record.usage) + used
            self.settled |= {"usage": runner.budget.used.to_json(), "token_usage": runner.budget.used.tokens.to_json()}
            self.settled["usage_seq"] = last_seq
            self.settled["turn_count"] = max(record.turn_count, last_turn(self.messages))
        if said or ends or record.message_count != len(self.messages):
            self.settled["message_count"] = len(self.messages)
        if found.turn is not None:
            runner.journal.correlation_id = found.turn.correlation_id
            done = found.turn.done(self.messages)
            self.settled["last_error"] = done.get("error")
            if ends:
                await runner.journal.end_turn(found.turn.turn_id, [*said, (TURN_DONE, done)], self.settled)
        if said and not ends:
            await runner.journal.write_all(said, lasting=True)

    async def _install(self, transcript: list[Message]) -> None:
        """Put a conversation into the context, and what a person had left out is left out again."""
        whole = self._known.installed_before(transcript)
        history = [for_context(m) if stored else for_kernel(m) for m, stored in whole]
        document = await self.runner.runtime.store.read_document(self.runner.session_id, COMPACTION)
        kept = KeptCompaction.find(document)
        ids = [m.get("id") if stored else None for m, stored in whole]
        if kept is None or kept.message_id not in ids:  # none, or of a part that was taken back
            await self._set_messages(history)
            return
        until = ids.index(kept.message_id) + 1
        await self._set_messages(history[:until])
        has_own = len(await settle(self._context.get_messages())) >= len(history)  # it restored its own file
        await compact_to(self._context, kept.token_budget)
        for message in () if has_own else history[until:]:
            await settle(self._context.add_message(message))

    async def _set_messages(self, messages: list[Message]) -> None:
        """Put a history into the context, behind the system messages that modules left there."""
        set_messages = getattr(self._context, "set_messages", None)
        if not callable(set_messages):
            for message in messages:
                await settle(self._context.add_message(message))
            return
        get_messages = getattr(self._context, "get_messages", None)
        present = await settle(get_messages()) if callable(get_messages) else []
        known = [message.get("content") for message in messages]
        kept = [m for m in present or () if m.get("role") == "system" and m.get("content") not in known]
        if ends_repaired(self.messages):  # a context with a file of its own does not know what became of the calls
            await settle(self._context.clear())
        await settle(set_messages([*kept, *messages]))

    async def add_mentioned(self, prompt: str, turn: int) -> None:
        """Add the files that a prompt mentions to the context."""
        entries = await self._known.for_prompt(prompt, turn)
        if entries:
            await self._add(entries)
            await self._tell_guard(entries)
            await self.runner.runtime.store.put_document(self.runner.hold, DOCUMENT, self._known.document())
        await self._tell_unresolved()

    async def _tell_guard(self, entries: Sequence[Message]) -> None:
        """Let the guard take down the files that prompts mentioned."""
        ledger = self.session.coordinator.get_capability(LEDGER)
        if not callable(getattr(ledger, "note_files", None)):
            return
        was_tainted = ledger.is_tainted
        for entry in entries:
            if entry.get("turn"):  # else the session began with it
                ledger.note_files(entry["content"], entry.get("paths") or (), self.runner.working_dir)
        if ledger.is_tainted and not was_tainted:
            await self.session.coordinator.hooks.emit(SESSION_TAINTED, {"tool_name": None})

    async def _keep_wording(self, message_id: str, content: Any) -> None:
        """Keep what became of a prompt on its way into the context."""
        self._known.reworded[message_id] = content
        await self.runner.runtime.store.put_document(self.runner.hold, DOCUMENT, self._known.document())

    async def add_images(self, images: Sequence[Mapping[str, Any]]) -> None:
        """Add images to the conversation; the prompt that they belong to follows."""
        message = {"role": "user", "content": [dict(image) for image in images]}
        await settle(self._context.add_message(message))
        await self.runner.transcript.add(message)

    @property
    def context(self) -> Any:
        """The session's own context manager."""
        return self._context

    async def add_to_context(self, message: Message) -> None:
        await settle(self._context.add_message(dict(message)))

    async def rebuild(self, messages: list[Message], turn: int) -> None:
        """Build the context anew from a transcript that ends with a turn."""
        self.messages = messages
        self._known.forget_after(turn)
        await self.runner.runtime.store.put_document(self.runner.hold, DOCUMENT, self._known.document())
        await settle(self._context.clear())
        await self._install(messages)

    async def _add(self, entries: Sequence[Message]) -> None:
        for entry in entries:
            await settle(self._context.add_message(for_kernel(entry)))

    async def _tell_unresolved(self) -> None:
        for mention, reason in self._known.take_unresolved():
            await self.runner.journal.write("mention:unresolved", {"mention": mention, "reason": reason})

    @property
    def _known(self) -> ContextMessages:
        if self._told is None:
            raise RuntimeError("the session is not started")
        return self._told

    def forget_approval(self, key: str) -> None:
        """Let the guard forget an answer that it keeps itself; what others keep is not its own."""
        forget = self.session.coordinator.get_capability("approval.forget")
        if callable(forget):
            forget(key)

    # --- turns

    @property
    def lacks_guard(self) -> bool:
        """True where a level was chosen after the modules were loaded, and none of them can ask."""
        return self.runner.permissions.level is not None and not self.session.coordinator.get_capability(GATE)

    @property
    def is_cancelled(self) -> bool:
        return self.session.coordinator.cancellation.is_cancelled

    def reset_cancellation(self) -> None:
        self.session.coordinator.cancellation.reset()

    def running_tools(self) -> list[str]:
        return list(self.session.coordinator.cancellation.running_tool_names)

    def cut_off(self) -> None:
        """Write nothing down any more that modules say."""
        if self._recorded is not None:
            self._recorded.cut_off()

    def end_turn(self) -> None:
        if self._calls is not None:
            self._calls.forget()

    async def steer(self, text: str) -> None:
        steer = self.session.coordinator.get_capability("session.steer")
        if not callable(steer):
            raise SteeringUnsupportedError(
                f"the orchestrator of session {self.runner.session_id} offers no session.steer",
                hint="use loop-basic, -streaming or -events",
            )
        await settle(steer(text))

    # --- end

    async def close(self) -> None:
        """End the modules, within half a minute, and release what they were imported from."""
        try:
            if self._has_session:
                with Boundary(logger, "session %s could not be cleaned up: %s", self.runner.session_id):
                    async with asyncio.timeout(_CLEANUP_S):
                        await self.session.cleanup()
        finally:
            path, self._import_path = self._import_path, None
            if path is not None:
                path.__exit__(None, None, None)


_NOT_MOUNTED = "Provider mount did not install a new provider instance"


def worth_reporting(
    failures: Sequence[Mapping[str, Any]], plan: Mapping[str, Any], providers: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the modules that are missing, with why in words.

    A provider that mounts nothing has no key. While another one answers, that is told only of the one that was chosen.
    """
    loop = next((entry for entry in MountPlan(dict(plan)).entries() if entry.module_type == "orchestrator"), None)
    chosen = loop.config.get("default_provider") if loop is not None else None
    reported = []
    for failure in map(dict, failures):
        error = str(failure.get("error"))
        if error.startswith(_NOT_MOUNTED):
            if providers and provider_name(str(failure.get("module_id"))) != chosen:
                continue
            reason = error.removeprefix(_NOT_MOUNTED).strip()
            failure["error"] = reason.removeprefix(f"{failure.get('module_id')} is not mounted: ") or error
        reported.append(failure)
    return reported


class RunningCalls:
    """Finds the id of a tool call from inside it.

    Our loops say at the coordinator which call a task serves. For other loops the calls that `tool:pre` announced are
    remembered until a tool runs with that name and input.
    """

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self._coordinator = coordinator
        self._announced: list[tuple[str, Any, str]] = []
        coordinator.hooks.register(TOOL_PRE, self._hear, priority=PRIORITY, name="session-running-calls")

    def find(self, tool_name: str, input: dict[str, Any]) -> str:
        running = getattr(self._coordinator, "_tool_dispatch_contexts", None)
        served = running.get(asyncio.current_task()) if isinstance(running, dict) else None
        call_id = served.get("tool_call_id") if isinstance(served, dict) else None
        return call_id if isinstance(call_id, str) and call_id else self._take(tool_name, input)

    def forget(self) -> None:
        """Forget what was announced: the turn has ended."""
        self._announced.clear()

    async def _hear(self, event: str, data: dict[str, Any]) -> HookResult:
        call_id = data.get("tool_call_id")
        if isinstance(call_id, str) and call_id:
            self._announced.append((str(data.get("tool_name")), data.get("tool_input"), call_id))
        return GO_ON

    def _take(self, tool_name: str, input: dict[str, Any]) -> str:
        same_name = [entry for entry in self._announced if entry[0] == tool_name]
        found = next((entry for entry in same_name if entry[1] == input), same_name[0] if same_name else None)
        if found is None:
            return f"call_{uuid.uuid4().hex}"
        self._announced.remove(found)
        return found[2]
