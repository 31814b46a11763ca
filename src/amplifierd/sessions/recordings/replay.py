"""Running a recorded session again, with another profile or plan, and showing where it goes another way.

Orchestrator, context and hooks are real. Provider answers and tool results come from the record: no model is asked, no
tool runs, and everything that is written lies in a directory that is removed again.
"""

from __future__ import annotations

import asyncio
import math
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from amplifier_core import ModuleCoordinator, ProviderInfo
from amplifier_core.module_sources import ModuleSourceResolver
from amplifier_core.mount_plan import MountPlan, PlanEntry
from amplifierd.exceptions import ReplayError
from amplifierd.identifiers import is_kept_secret
from amplifierd.paths import Paths
from amplifierd.plans.foreign_values import own_place
from amplifierd.plans.runtime_values import declared_by, key_variables
from amplifierd.sessions.children import as_agent
from amplifierd.sessions.conversation.context_messages import DOCUMENT
from amplifierd.sessions.conversation.recorded_session import RecordedSession
from amplifierd.sessions.creation import Creation, SessionRequest, overrides_of
from amplifierd.sessions.events.announcements import Announcements
from amplifierd.sessions.events.tree_events import TreeEvents
from amplifierd.sessions.layers.calls import StandIn
from amplifierd.sessions.layers.tree_budget import TreeBudget
from amplifierd.sessions.questions.approval import ALLOW, DENY, Approval, ApprovalDecision
from amplifierd.sessions.questions.approvals import ApprovalQueue
from amplifierd.sessions.runner import ExecutionRunner
from amplifierd.sessions.runtime import LoadedSessions, Runtime
from amplifierd.sessions.session_setup import SessionSetup
from amplifierd.sessions.tree import SessionTree
from amplifierd.store.file_store import FileStore
from amplifierd.store.protocol import NewSession
from amplifierd.store.record import SessionRecord

from .divergence import Divergence, RequestComparison
from .replay_layer import ReplayLayer, Totals
from .stored_requests import StoredRequest

ReplayStatus = Literal["same", "diverged", "impossible"]

_EXIT_STATUS: dict[ReplayStatus, int] = {"same": 0, "diverged": 1, "impossible": 2}
_KEY = "replay"
"""Stands for every key and token: no provider is called."""


@dataclass(frozen=True)
class ReplaySource:
    """What a session is run again with; without any of them, its own plan as it is stored."""

    profile: str | None = None
    bundle: str | None = None
    plan: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        if self.profile or self.bundle:
            return f"profile {self.profile}" if self.profile else f"bundle {self.bundle}"
        return "its own plan" if self.plan is None else "another plan"


@dataclass(frozen=True)
class ReplayResult:
    """What came of a replay. `divergences` are those of the first request that differs, the first of them first.

    `tokens` are estimates of everything that was sent; a cost of None is unknown. `reason` says why a session could
    not be replayed, or not to its end.
    """

    session_id: str
    source: str
    status: ReplayStatus
    replayed: int = 0
    recorded: int = 0
    divergences: tuple[Divergence, ...] = ()
    totals: Totals | None = None
    reason: str = ""

    @property
    def divergence(self) -> Divergence | None:
        """The first divergence."""
        return self.divergences[0] if self.divergences else None

    @property
    def exit_status(self) -> int:
        """What a command returns: 0 for the same, 1 for another way, 2 for a session that cannot be replayed."""
        return _EXIT_STATUS[self.status]

    def to_json(self) -> dict[str, Any]:
        totals = self.totals or Totals()
        return {
            "session_id": self.session_id,
            "source": self.source,
            "status": self.status,
            "exit_status": self.exit_status,
            "requests": {"recorded": self.recorded, "replayed": self.replayed},
            "divergence": self.divergence and self.divergence.to_json(),
            "divergences": [divergence.to_json() for divergence in self.divergences],
            "tokens": _change(totals.old_tokens, totals.new_tokens),
            "cost_usd": _cost_change(totals),
            "reason": self.reason or None,
        }

    def __str__(self) -> str:
        head = f"{self.session_id} with {self.source}: {self.status}, {self.replayed} of {self.recorded} requests"
        lines = [head, *(str(divergence) for divergence in self.divergences)]
        if self.totals is not None and self.replayed:
            tokens = self.totals.new_tokens - self.totals.old_tokens
            cost = _cost_change(self.totals)
            lines.append(f"tokens {tokens:+d}, cost {'unknown' if cost is None else cost['change'] + ' USD'}")
        return "\n".join([*lines, *([self.reason] if self.reason else [])])


OWN_PLAN = ReplaySource()


async def replay(
    runtime: Runtime, creation: Creation, session_id: str, source: ReplaySource = OWN_PLAN
) -> ReplayResult:
    """Run a session again and say where it goes another way first.

    Raises what `Creation.plan_for` raises for a profile, bundle or plan that cannot be used, and
    `SessionNotFoundError`.
    """
    try:
        recorded = await RecordedSession.load(runtime.store, session_id)
    except ReplayError as error:
        return ReplayResult(session_id, str(source), "impossible", reason=error.message)
    setup, plan = await _equip(runtime, creation, recorded.record, source)
    scratch = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="amplifier-replay-"))
    try:
        stage = await _Stage.set_up(runtime, recorded, setup, plan, scratch)
        layer = await stage.run()
    finally:
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
    status: ReplayStatus = "diverged" if layer.divergences else "impossible" if layer.stopped else "same"
    return ReplayResult(
        session_id,
        str(source),
        status,
        layer.replayed,
        len(recorded.requests),
        tuple(layer.divergences),
        layer.totals,
        layer.stopped,
    )


async def _equip(
    runtime: Runtime, creation: Creation, record: SessionRecord, source: ReplaySource
) -> tuple[SessionSetup, Mapping[str, Any]]:
    if source == OWN_PLAN:
        setup = await as_agent(runtime.store, record, await runtime.setups.of_record(record))
        return setup, await runtime.store.read_plan(record.session_id)
    request = SessionRequest(
        profile=source.profile,
        bundle=source.bundle,
        plan=source.plan,
        working_dir=Path(record.working_dir),
        **overrides_of(record),
    )
    return await creation.plan_for(request)


class _Stage:
    """A session in a store of its own, whose every call is answered from the record."""

    def __init__(self, runner: ExecutionRunner, recorded: RecordedSession, layer: ReplayLayer) -> None:
        self._runner, self._recorded, self._layer = runner, recorded, layer

    @classmethod
    async def set_up(
        cls,
        runtime: Runtime,
        recorded: RecordedSession,
        setup: SessionSetup,
        plan: Mapping[str, Any],
        scratch: Path,
    ) -> _Stage:
        session_id, secrets = recorded.record.session_id, runtime.secrets
        paths = Paths.from_environment(scratch, environ={})
        store = FileStore(paths)
        without_effects = ReplayPlan.of(plan, setup.resolver)
        keys = _stand_in_keys(plan, setup)
        known = runtime.environment
        environment = {name: value if secrets.masked(value) == value else _KEY for name, value in known.items()}
        aside = replace(
            runtime,
            store=store,
            paths=paths,
            environment=environment,
            find_key=lambda name: _KEY if is_kept_secret(name) else keys.get(name),
            announcements=Announcements(store, secrets),
            loaded=LoadedSessions(most=1, idle_s=math.inf),
        )
        record = recorded.record.changed(
            **{name: None for name in ("limits", "usage", "usage_tree", "token_usage", "root_session_id")},
            message_count=len(recorded.earlier),
            turn_count=recorded.turns[0].number - 1,
        )
        hold = await store.create(NewSession(record, without_effects.plan, recorded.earlier), runtime.holder)
        recorded_in = runtime.store.workspace(session_id).parent
        names = {str(recorded_in): "<sessions>", str(paths.sessions): "<sessions>"}
        comparison = RequestComparison(secrets.scrubbed, names)
        layer = ReplayLayer(recorded, comparison, lambda text: runner.steer(text))
        tree = SessionTree(store, hold, TreeEvents(session_id), TreeBudget(), _approvals(session_id, recorded))
        runner = ExecutionRunner(
            aside,
            session_id,
            hold=hold,
            record=record,
            tree=tree,
            setup=replace(setup, place_of=own_place),  # it has stand-ins for keys, which anyone may have
            layers=(layer,),
        )
        inherited = await _inherited(runtime, session_id)
        await runner.start(inherited=inherited)
        coordinator = runner.kernel.session.coordinator
        await _keep_from_calling(coordinator, recorded)
        for name, tool in without_effects.recorded_tools(recorded.requests).items():
            await coordinator.mount("tools", tool, name=name)
        return cls(runner, recorded, layer)

    async def run(self) -> ReplayLayer:
        layer = self._layer
        try:
            for turn in self._recorded.turns:
                layer.begin(turn)
                await self._runner.execute(turn.prompt, images=turn.images)
                layer.end()
                if layer.stopped:
                    break
        finally:
            await self._runner.cleanup()
            await self._runner.runtime.store.close()
        return layer


def _stand_in_keys(plan: Mapping[str, Any], setup: SessionSetup) -> dict[str, str]:
    """Return a key for every provider that takes one, so that it mounts on a machine that has none."""
    providers = (entry for entry in MountPlan(dict(plan)).entries() if entry.module_type == "provider")
    return {entry.module_id: _KEY for entry in providers if key_variables(entry, setup.resolver)}


async def _inherited(runtime: Runtime, session_id: str) -> list[dict[str, Any]]:
    """Return what a child was told of its parent's conversation."""
    document = await runtime.store.read_document(session_id, DOCUMENT)
    entries = document.get("messages") if isinstance(document, Mapping) else None
    return [dict(entry) for entry in entries or () if (entry.get("origin") or {}).get("kind") == "inherited"]


def _approvals(session_id: str, recorded: RecordedSession) -> ApprovalQueue:
    async def nothing(*_: Any) -> None: ...

    return ApprovalQueue(session_id, emit=nothing, load=nothing, save=nothing, approver=_AsThen(recorded))


class _AsThen:
    """Allows the calls that ran in the record."""

    def __init__(self, recorded: RecordedSession) -> None:
        self._recorded = recorded

    async def decide(self, approval: Approval) -> ApprovalDecision:
        ran = approval.tool_call_id is None or approval.tool_call_id in self._recorded.calls
        return ApprovalDecision(ALLOW if ran else DENY)


async def _keep_from_calling(coordinator: ModuleCoordinator, recorded: RecordedSession) -> None:
    """Let no module ask a provider by itself, and offer every provider of the record."""
    for name, provider in dict(coordinator.get("providers") or {}).items():
        await coordinator.mount("providers", _Silent(provider), name=name)
    for request in recorded.requests:
        if request.provider not in coordinator.get("providers"):
            missing = _Missing(request.provider, request.model)
            await coordinator.mount("providers", missing, name=request.provider)


class _Silent(StandIn):
    """A provider that is never asked."""

    __slots__ = ()

    async def complete(self, request: Any, **options: Any) -> Any:
        raise ReplayError("a provider was called without the orchestrator; no model is asked in a replay")


class _Missing:
    """Has the name of a provider that is not mounted here: the record answers in its place."""

    def __init__(self, name: str, model: str | None) -> None:
        self.name, self.default_model = name, model

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self.name, display_name=self.name)

    async def list_models(self) -> list[Any]:
        return []

    async def complete(self, request: Any, **options: Any) -> Any:
        raise ReplayError("no model is asked in a replay")

    def parse_tool_calls(self, response: Any) -> list[Any]:
        return response.tool_calls or []


def _change(old: int, new: int) -> dict[str, int]:
    return {"old": old, "new": new, "change": new - old}


def _cost_change(totals: Totals) -> dict[str, str] | None:
    old, new = totals.old_cost, totals.new_cost
    if old is None or new is None:
        return None
    difference: Decimal = new - old
    return {"old": str(old), "new": str(new), "change": f"{difference:+f}"}


# The plan of a replay: without the modules that reach out of the session by themselves.
#
# A module says so in its `runtime.toml`: with `leave_out` in the table `replay` it is not mounted, and the recorded
# tools whose names match one of `tools` stand for those that it would have mounted.


@dataclass(frozen=True)
class ReplayPlan:
    """A plan that can be mounted without effects, and the patterns of the tools that the record stands in for."""

    plan: dict[str, Any]
    tool_patterns: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: Mapping[str, Any], resolver: ModuleSourceResolver | None) -> ReplayPlan:
        left_out: list[Mapping[str, Any]] = []

        def change(entry: PlanEntry) -> Mapping[str, Any] | None:
            said = declared_by(entry, resolver).get("replay")
            if isinstance(said, Mapping) and said.get("leave_out") is True:
                left_out.append(said)
                return None
            return entry.spec

        mounted = MountPlan(dict(plan)).map(change)
        return cls(mounted, tuple(str(pattern) for said in left_out for pattern in said.get("tools") or ()))

    def recorded_tools(self, requests: Iterable[StoredRequest]) -> dict[str, RecordedTool]:
        """Return the tools that stand for those of modules that are left out."""
        specs = {str(spec.get("name")): spec for request in requests for spec in request.tools}
        return {
            name: RecordedTool(spec)
            for name, spec in specs.items()
            if any(fnmatchcase(name, pattern) for pattern in self.tool_patterns)
        }


class RecordedTool:
    """Looks to a model like the tool that was offered then."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.name = str(spec.get("name"))
        self.description = str(spec.get("description") or "")
        self.input_schema: dict[str, Any] = dict(spec.get("parameters") or {})

    async def execute(self, input: dict[str, Any]) -> Any:
        raise ReplayError(f"tool {self.name!r} is a recorded one; no tool runs in a replay")
