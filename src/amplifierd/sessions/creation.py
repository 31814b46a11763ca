"""Making a session: from a profile, a bundle or a plan to a record, a plan of its own, and what it runs with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from amplifier_core.mount_plan import MountPlan
from amplifier_system.permission_levels import PermissionLevel, chosen_level, within_default
from amplifier_system.threads import in_thread
from amplifierd.exceptions import MountPlanError, SessionStateError
from amplifierd.identifiers import OWNERS_OF_THE_HOME
from amplifierd.issues import Issue
from amplifierd.limits import Limits
from amplifierd.plans.conversion import Form
from amplifierd.plans.foreign_values import ForeignValues
from amplifierd.plans.home_plans import Plans
from amplifierd.plans.request import lay_over_plan
from amplifierd.profiles.builds.build import Build
from amplifierd.profiles.builds.home_profiles import Profiles
from amplifierd.profiles.documents.literal_secrets import KeepSecret, conceal
from amplifierd.sessions.conversation.transcript import last_turn, message_line
from amplifierd.store.protocol import Message, NewSession
from amplifierd.store.record import (
    OnTakeover,
    SessionRecord,
    WorkingDirScope,
    checked_name,
    checked_record,
    checked_session_id,
    new_session_id,
    now,
)

from .secret_values import without_secrets
from .session_setup import SessionSetup, SetupFinder
from .working_place import Machine

_WHOLE_PLAN = (
    "a plan needs session.orchestrator, session.context and one of providers, for example loop-basic, context-simple "
    "and provider-mock; a bundle that lacks them includes one that has them"
)


@dataclass(frozen=True)
class SessionRequest:
    """What a new session is asked to be; exactly one of `profile`, `bundle` and `plan`.

    `base_profile` is the profile that a bundle runs over, by default the one of new sessions.
    `build` is that of the profile if the caller has made sure of it already. `history` has messages of a conversation
    that went on elsewhere, and goes on here. `permission_level` is what a person chose; otherwise that of the profile
    counts, or of the bundle or plan, which can only narrow.
    `overrides` are the person's own, as what a program passes is, unless they are `overrides_from_elsewhere`: from a
    project, or from an HTTP request.
    """

    profile: str | None = None
    build: Build | None = None
    bundle: str | None = None
    plan: Mapping[str, Any] | None = None
    base_profile: str | None = None
    working_dir: Path = field(default_factory=Path.cwd)
    working_dir_scope: WorkingDirScope | None = None
    session_id: str | None = None
    name: str | None = None
    overrides: Mapping[str, Any] | None = None
    overrides_from_elsewhere: bool = False
    form: Form = "portable"
    limits: Limits = field(default_factory=Limits)
    on_takeover: OnTakeover = "ask"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    owner: str | None = None
    history: tuple[Mapping[str, Any], ...] = ()
    start: bool = True
    is_trusted: bool = False
    parent_session_id: str | None = None
    permission_level: PermissionLevel | None = None

    @property
    def has_own_overrides(self) -> bool:
        """True where what is laid over the plan is the person's own."""
        return bool(self.overrides) and not self.overrides_from_elsewhere and self.owner in OWNERS_OF_THE_HOME


class Creation:
    """Makes sessions, in one home."""

    def __init__(
        self,
        profiles: Profiles,
        plans: Plans,
        setups: SetupFinder,
        *,
        machine: Machine,
        keep: KeepSecret,
        allow_modules: bool,
        foreign_values: Callable[[SessionSetup], ForeignValues],
    ) -> None:
        self._foreign_values = foreign_values
        self._profiles, self._plans, self._setups, self._keep = profiles, plans, setups, keep
        self._machine, self._allow_modules = machine, allow_modules

    async def prepare(self, request: SessionRequest) -> tuple[NewSession, SessionSetup]:
        """Return everything that a new session is stored with, and what it runs with; nothing is stored yet.

        Raises:
            MountPlanError: the plan breaks rules; with all issues.
            SessionStateError: its name or another value cannot be used.
            ProfileNotFoundError, ProfileValidationError, ProfileCompilationError: the profile cannot be used.
            BundleError: the bundle cannot be used.
            AgreementNeededError: the plan comes from elsewhere, and would give away what no one agreed to.
        """
        name = checked_name(request.name)
        request = await self._without_secrets(request)
        setup, plan = await self._checked_plan(request)
        is_narrowed = setup.build is not None or setup.composition is not None
        level = request.permission_level or _level_in(plan, is_own=is_narrowed)
        moment = now()
        messages = _stored(request.history)
        record = checked_record(
            session_id=checked_session_id(request.session_id) if request.session_id else new_session_id(),
            name=name,
            status="active" if request.start else "created",
            profile_name=str(setup.profile_id) if setup.profile_id else None,
            bundle=request.bundle,
            base_profile=setup.base_profile,
            working_dir=str(request.working_dir),
            **self._machine.place_of(request.working_dir, request.working_dir_scope),
            is_trusted=request.is_trusted,
            created_at=moment,
            started_at=moment if request.start else None,
            last_activity_at=moment,
            updated_at=moment,
            build_id=setup.build_id,
            owner=request.owner,
            parent_session_id=request.parent_session_id,
            limits=request.limits.to_json() or None,
            on_takeover=request.on_takeover,
            permission_level=level,
            settings_overrides=without_secrets(request.overrides or {}),
            own_overrides=request.has_own_overrides,
            metadata=dict(request.metadata),
            tags=list(request.tags),
            message_count=len(messages),
            turn_count=last_turn(messages),
        )
        return NewSession(record, plan, messages=messages), setup

    async def plan_for(self, request: SessionRequest) -> tuple[SessionSetup, dict[str, Any]]:
        """Return the plan that a request leads to, valid and without secrets, and its setup."""
        return await self._checked_plan(await self._without_secrets(request))

    async def _without_secrets(self, request: SessionRequest) -> SessionRequest:
        """Return a request with references to the key store in place of the secrets that it brings."""
        if request.plan is None and not request.overrides:
            return request
        return replace(
            request, plan=await self._concealed(request.plan), overrides=await self._concealed(request.overrides)
        )

    async def _concealed(self, values: Mapping[str, Any] | None) -> Any:
        return await in_thread(lambda stop: conceal(values, self._keep))

    async def _checked_plan(self, request: SessionRequest) -> tuple[SessionSetup, dict[str, Any]]:
        setup, plan = await self._plan(request)
        setup = setup.laid_over(request.overrides or {}, is_own=request.has_own_overrides)
        report = self._plans.validate(plan)
        if report.errors:
            issues = [Issue(check.name, check.message, check.location) for check in report.errors]
            text = "\n".join(f"  {issue}" for issue in issues)
            raise MountPlanError(f"The mount plan cannot be used:\n{text}", issues, hint=_WHOLE_PLAN)
        await in_thread(lambda stop: self._foreign_values(setup).check(plan))
        return setup, plan

    async def _plan(self, request: SessionRequest) -> tuple[SessionSetup, dict[str, Any]]:
        given = [name for name in ("profile", "bundle", "plan") if getattr(request, name) is not None]
        if len(given) != 1:
            raise SessionStateError(
                f"a session has one source, got {', '.join(given) or 'none'}", hint="give a profile, a bundle or a plan"
            )
        if request.profile is not None:
            setup = await self._setups.of_profile(request.profile, request.working_dir, build=request.build)
            assert setup.build is not None
            plan = await self._plans.generate(
                setup.build,
                form=request.form,
                overrides=request.overrides,
                overrides_from_elsewhere=not request.has_own_overrides,
            )
            plan["session"] = _with_profile_name(plan["session"], str(setup.profile_id))
            return setup, plan
        if request.bundle is not None:
            setup = await self._setups.of_bundle(request.bundle, request.working_dir, request.base_profile)
            assert setup.composition is not None
            plan = deepcopy(await self._concealed(setup.composition.plan))
        else:
            setup = await self._setups.of_plan(
                request.working_dir, is_requested=request.owner not in OWNERS_OF_THE_HOME
            )
            plan = deepcopy(dict(request.plan or {}))
        if request.overrides:
            plan = lay_over_plan(plan, request.overrides, allow_modules=self._allow_modules)
        return setup, plan


def _level_in(plan: Mapping[str, Any], *, is_own: bool) -> PermissionLevel | None:
    """The permission level that a plan names; one that was not compiled from profiles of this home only narrows.

    Raises:
        MountPlanError: there is no such level.
    """
    written = MountPlan(plan).session.get("permission_level")
    try:
        level = chosen_level(written)
    except ValueError as error:
        issue = Issue("wrong-value", str(error), "session.permission_level")
        raise MountPlanError(f"The mount plan cannot be used: {error}", [issue]) from error
    return level if is_own else within_default(level)


def overrides_of(record: SessionRecord) -> dict[str, Any]:
    """Return what a request takes over from a stored session that was laid over its plan, and who laid it there."""
    is_own = record.own_overrides and record.verified is not False
    return {"overrides": record.settings_overrides or None, "overrides_from_elsewhere": not is_own}


def _with_profile_name(session: Mapping[str, Any], profile: str) -> dict[str, Any]:
    return {**session, "settings": {**(session.get("settings") or {}), "profile_name": profile}}


def _stored(history: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return messages as a transcript has them; a turn begins with each message of the user."""
    lines: list[Message] = []
    for message in history:
        turn = last_turn(lines) + (message.get("role") == "user")
        lines.append(message_line(message, turn))
    return lines
