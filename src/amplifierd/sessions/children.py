"""The children of a session: agents that work in sessions of their own, in the same tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from amplifier_core import HookResult
from amplifier_core.events import ORCHESTRATOR_COMPLETE
from amplifier_foundation.observability import bridge_child_cost
from amplifier_kit.messages.conversation import CLOSING_MESSAGE, text_of
from amplifierd.exceptions import ExecutionError, SessionNotFoundError
from amplifierd.sessions.events.journal import GO_ON, PRIORITY, nesting_of
from amplifierd.sessions.layers.budget_layer import FINISH_REASON
from amplifierd.sessions.layers.calls import running_call_id
from amplifierd.store.protocol import Message, NewSession, SessionStore
from amplifierd.store.record import SessionRecord, now

from .session_setup import SessionSetup
from .turn_result import TurnResult

if TYPE_CHECKING:
    from .runner import ExecutionRunner
    from .spawning import ChildPlan

AGENT_DOCUMENT = "agent"


async def as_agent(store: SessionStore, record: SessionRecord, setup: SessionSetup) -> SessionSetup:
    """Return the setup of a child that is run on its own, or of a fork of one; that of others is as it was."""
    agent = await store.read_document(record.session_id, AGENT_DOCUMENT) if record.agent_name else None
    return setup.for_agent(str(record.agent_name), str(agent.get("instruction") or "")) if agent else setup


class Children:
    """Runs the children of one session; a child is stored, resumable, and counts towards the tree's limits."""

    def __init__(self, runner: ExecutionRunner) -> None:
        self._runner = runner
        self._running: dict[str, ExecutionRunner] = {}
        self.invocations = runner.record.agent_invocations

    def running_ids(self) -> list[str]:
        """Return the sessions that run below this one."""
        return [
            session_id
            for child in self._running.values()
            for session_id in (child.session_id, *child.children.running_ids())
        ]

    async def spawn(
        self, agent_name: str, instruction: str, parent_session: Any = None, **options: Any
    ) -> dict[str, Any]:
        """Run an instruction as an agent, in a new session; the capability `session.spawn`.

        Raises:
            AgentNotFoundError: the session has no such agent.
            ExecutionError: agents are nested too deeply, or the child's turn failed.
        """
        runner = self._runner
        if parent_session is not None and parent_session.session_id in runner.tree.runners:
            runner = runner.tree.runners[parent_session.session_id]
            if runner is not self._runner:
                return await runner.children.spawn(agent_name, instruction, **options)
        deepest = runner.runtime.settings.sessions.max_spawn_depth
        if runner.depth >= deepest:
            raise ExecutionError(
                f"agent '{agent_name}' is not started: agents are already nested {deepest} deep",
                hint="raise sessions.max_spawn_depth",
            )
        known = {key: options[key] for key in _OPTIONS if key in options}
        from .spawning import plan_child  # loaded with the first child

        stored_plan = await runner.runtime.store.read_plan(runner.session_id)
        child = await plan_child(
            runner.kernel.session, runner.setup.bundle, agent_name, stored_plan=stored_plan, **known
        )
        hold = await runner.runtime.announcements.create(
            self._new(child),
            runner.runtime.holder,
            runner.tree.events,
            correlation_id=runner.journal.correlation_id,
            nesting=nesting_of(runner.depth + 1, child.metadata.get("tool_call_id") or running_call_id()),
        )
        self.invocations += 1
        record = await runner.runtime.store.read(child.session_id)
        setup = runner.setup.for_agent(agent_name, child.instruction)
        depth = child.self_delegation_depth
        return await self._run(record, hold, setup, instruction, child.metadata, child.messages, depth=depth)

    async def resume(
        self,
        sub_session_id: str,
        instruction: str,
        provider_preferences: Sequence[Any] | None = None,
        model_role: str | Sequence[str] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Run another instruction in a child of this tree; the capability `session.resume`.

        It goes on with the model that it was spawned with, unless the call prefers another; that one is kept then.

        Raises:
            FileNotFoundError: there is no such child.
            SessionHeldError: it is at work elsewhere.
        """
        runtime, tree = self._runner.runtime, self._runner.tree
        try:
            record = await runtime.store.read(sub_session_id)
        except SessionNotFoundError as error:
            raise FileNotFoundError(error.message) from error
        if record.root_id != tree.events.root_session_id or record.created_by != "agent":
            raise FileNotFoundError(f"session {sub_session_id!r} is not a child of this tree")
        hold = await runtime.store.acquire(sub_session_id, runtime.holder)
        try:
            if provider_preferences or model_role:
                from .spawning import plan_with_choice  # loaded with the first child

                plan = await runtime.store.read_plan(sub_session_id)
                parent = self._runner.kernel.session.coordinator
                rerouted = await plan_with_choice(plan, parent, provider_preferences, model_role)
                if rerouted != plan:
                    await runtime.store.switch_plan(hold, rerouted, {})
                    record = await runtime.store.read(sub_session_id)
            agent = await runtime.store.read_document(sub_session_id, AGENT_DOCUMENT) or {}
        except BaseException:
            await runtime.store.release(hold)
            raise
        setup = await as_agent(runtime.store, record, self._runner.setup)
        metadata = options.get("session_metadata") or {}
        depth = int(agent.get("self_delegation_depth") or 0)
        return await self._run(record, hold, setup, instruction, metadata, depth=depth)

    def _new(self, child: ChildPlan) -> NewSession:
        parent = self._runner.record
        moment = now()
        record = SessionRecord(
            session_id=child.session_id,
            profile_name=parent.profile_name,
            bundle=parent.bundle,
            base_profile=parent.base_profile,
            working_dir=parent.working_dir,
            working_dir_scope=parent.working_dir_scope,
            working_dir_host=parent.working_dir_host,
            working_dir_pool=parent.working_dir_pool,
            parent_session_id=parent.session_id,
            root_session_id=parent.root_id,
            created_by="agent",
            agent_name=child.agent_name,
            owner=parent.owner,
            created_at=moment,
            started_at=moment,
            last_activity_at=moment,
            build_id=parent.build_id,
            metadata=dict(child.metadata),
        )
        agent: dict[str, Any] = {"name": child.agent_name, "instruction": child.instruction}
        if child.self_delegation_depth > 0:
            agent["self_delegation_depth"] = child.self_delegation_depth
        return NewSession(record, child.plan, documents={AGENT_DOCUMENT: agent})

    async def _run(
        self,
        record: SessionRecord,
        hold: Any,
        setup: Any,
        instruction: str,
        metadata: Mapping[str, Any],
        inherited: Sequence[Mapping[str, Any]] = (),
        *,
        depth: int = 0,
    ) -> dict[str, Any]:
        parent = self._runner
        child = type(parent)(
            parent.runtime,
            record.session_id,
            hold=hold,
            record=record,
            tree=parent.tree,
            setup=setup,
            parent=parent,
            parent_tool_call_id=metadata.get("tool_call_id") or running_call_id(),
            self_delegation_depth=depth,
        )
        self._running[record.session_id] = child
        try:
            messages: list[Message] = [dict(message) for message in inherited]
            await child.start(inherited=messages)
            try:
                with _linked(parent, child), _last_words(child) as words:
                    result = await child.execute(instruction, parent.journal.correlation_id)
            finally:
                parent.budget.count_below(child.budget)
            own, outer = child.kernel.session.coordinator, parent.kernel.session.coordinator
            await bridge_child_cost(own, outer, record.session_id)
        finally:
            self._running.pop(record.session_id, None)
            await child.cleanup()
        return _returned(result, words)

    async def partial(self, sub_session_id: str) -> dict[str, Any] | None:
        """Return what a child of this tree said in its last turn so far; the capability `session.partial`."""
        runtime, tree = self._runner.runtime, self._runner.tree
        try:
            record = await runtime.store.read(sub_session_id)
        except SessionNotFoundError:
            return None
        if record.root_id != tree.events.root_session_id:
            return None
        messages = await runtime.store.read_messages(sub_session_id)
        turn = max((message["turn"] for message in messages), default=0)
        own = [message for message in messages if message["turn"] == turn and message["role"] == "assistant"]
        said = [message for message in own if "interrupted" not in (message.get("metadata") or {})]
        texts = [text_of(message["content"]).strip() for message in said]
        texts = [text for text in texts if text and text != CLOSING_MESSAGE["content"]]
        return {"text": "\n\n".join(texts), "segments": len(texts), "source": "transcript"}


_OPTIONS = (
    *("agent_configs", "sub_session_id", "tool_inheritance", "hook_inheritance", "orchestrator_config"),
    *("parent_messages", "provider_preferences", "model_role", "self_delegation_depth", "session_metadata"),
)


def _returned(result: TurnResult, words: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a delegation tool is told of a child's turn; `words` are the last ones of its orchestrator.

    Raises:
        ExecutionError: it failed.
    """
    if result.status == "failed":
        detail = (result.error or {}).get("detail") or "the turn failed"
        raise ExecutionError(f"session {result.session_id}: {detail}")
    status = str(words.get("status", "success")) if result.status == "completed" else result.status
    if result.finish_reason == FINISH_REASON:
        status = "budget_exhausted"
    return {
        "output": result.response,
        "response": result.response,
        "session_id": result.session_id,
        "status": status,
        "turn_count": result.turn,
        "metadata": {"usage": result.usage, "finish_reason": result.finish_reason},
    }


@contextmanager
def _last_words(child: ExecutionRunner) -> Iterator[dict[str, Any]]:
    """Collect what a child's orchestrator says when it is done."""
    words: dict[str, Any] = {}

    async def listen(event: str, data: dict[str, Any]) -> HookResult:
        words.update(data)
        return GO_ON

    hooks = child.kernel.session.coordinator.hooks
    undo = hooks.register(ORCHESTRATOR_COMPLETE, listen, priority=PRIORITY, name="session-last-words")
    try:
        yield words
    finally:
        undo()


@contextmanager
def _linked(parent: ExecutionRunner, child: ExecutionRunner) -> Iterator[None]:
    """Pass a parent's requests to stop on to its child, for as long as the child runs."""
    token, own = parent.kernel.session.coordinator.cancellation, child.kernel.session.coordinator.cancellation
    token.register_child(own)
    try:
        yield
    finally:
        token.unregister_child(own)
