"""A session as it is stored: what `metadata.json` says about it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from amplifier_core.utils.assembly import set_fields_set
from amplifier_sessions.session_directory import is_session_id
from amplifier_system.permission_levels import PermissionLevel
from amplifier_system.surroundings import new_token, time_ns
from amplifierd.exceptions import InvalidSessionIdError, SessionNameError, SessionStateError

SessionState = Literal["created", "active", "completed", "failed", "terminated"]
Activity = Literal["idle", "queued", "executing", "waiting_approval", "cancelling"]
OnTakeover = Literal["ask", "continue", "stop"]
WorkingDirScope = Literal["host", "pool", "shared"]

_NO_FIELDS: set[str] = set()
_LONGEST_NAME = 200
_second: tuple[int, str] = (-1, "")


class SessionRecord(BaseModel):
    """One session; frozen. Fields that this version does not know are kept as they are.

    A child that an agent runs in has the `root_session_id` of its tree; a fork begins a tree of its own. `usage` counts
    what this session used itself, without its children: `{tokens, tool_calls, cost_usd, by_model}`, up to the event
    with the number `usage_seq`. `is_trusted` says that its opener named the working directory, which may then be
    snapshotted. `on_takeover` says what follows a turn that ended with the process that ran it, and `takeover` that it
    happened: `{turn, action, at}`, until the next turn begins. `working_dir_scope` says which machines have the working
    directory: the one that is `working_dir_host`, those whose pool is `working_dir_pool`, or all that share its path.
    `tainted` says that it has read content from outside as well as private data, so that every host is asked about.
    `own_overrides` says that its `settings_overrides` are the person's own, not those of a project or a request.
    `first_prompt` is the beginning of what a person said first, by which a session without a name is called.
    `permission_level` is what was chosen for it, None where only the rules of its profile count.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    session_id: str
    name: str | None = Field(default=None, max_length=_LONGEST_NAME)
    status: SessionState = "active"
    profile_name: str | None = None
    bundle: str | None = None
    base_profile: str | None = None
    working_dir: str
    working_dir_scope: WorkingDirScope = "host"
    working_dir_host: str | None = None
    working_dir_pool: str | None = None
    is_trusted: bool = False
    parent_session_id: str | None = None
    root_session_id: str | None = None
    forked_from_turn: int | None = None
    forked_at: str | None = None
    created_by: Literal["user", "agent"] = "user"
    agent_name: str | None = None
    owner: str | None = None
    origin: str | None = None
    imported_from: str | None = None
    verified: bool | None = None
    created_at: str
    started_at: str | None = None
    ended_at: str | None = None
    last_activity_at: str | None = None
    updated_at: str | None = None
    mount_plan_path: str = "mount_plan.json"
    build_id: str | None = None
    model: str | None = None
    first_prompt: str | None = None
    message_count: int = 0
    turn_count: int = 0
    agent_invocations: int = 0
    token_usage: dict[str, int] | None = None
    usage: dict[str, Any] | None = None
    usage_seq: int | None = None
    usage_tree: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None
    on_takeover: OnTakeover = "ask"
    takeover: dict[str, Any] | None = None
    stale: bool = False
    tainted: bool = False
    permission_level: PermissionLevel | None = None
    error_message: str | None = None
    error_details: dict[str, Any] | None = None
    last_error: dict[str, Any] | None = None
    load_warnings: list[dict[str, Any]] = []
    settings_overrides: dict[str, Any] = {}
    own_overrides: bool = False
    metadata: dict[str, Any] = {}
    tags: list[str] = []
    revision: int = 0

    @property
    def root_id(self) -> str:
        return self.root_session_id or self.session_id

    def fields(self) -> dict[str, Any]:
        """Return everything that it says, those of other versions included: plain data, not copied."""
        return {**self.__dict__, **(self.__pydantic_extra__ or {})}

    def changed(self, **changes: Any) -> SessionRecord:
        """Return the record with other values, checked, and one revision later.

        Raises:
            SessionStateError: a value cannot be used.
        """
        return checked_record(**{**self.fields(), **changes, "revision": self.revision + 1, "updated_at": now()})


def checked_record(**fields: Any) -> SessionRecord:
    """Return a record of these fields.

    Raises:
        SessionStateError: a value cannot be used.
    """
    checked_name(fields.get("name"))
    try:
        return slim(SessionRecord.model_validate(fields))
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise SessionStateError(f"the record of a session cannot be stored: {'; '.join(wrong)}") from error


def slim(record: SessionRecord) -> SessionRecord:
    """Let a record forget which of its fields were given: that takes half as much memory as what they say."""
    set_fields_set(record, _NO_FIELDS)
    return record


def checked_name(text: str | None) -> str | None:
    """Return the name of a session, None for an empty one.

    Raises:
        SessionNameError: it is too long.
    """
    if text and len(text) > _LONGEST_NAME:
        raise SessionNameError(
            f"the name of a session has at most {_LONGEST_NAME} characters, and this one has {len(text)}",
            hint="give it a shorter name",
        )
    return text or None


def state_conflict(session_id: str, status: SessionState, action: str) -> SessionStateError:
    """Return the error of a session whose state does not allow an action; it names those that are allowed."""
    allowed = {"created": "be started", "active": "execute, or become completed, failed or terminated"}
    can = allowed.get(status, "be resumed")
    return SessionStateError(f"session {session_id} is {status} and cannot {action}; it can {can}")


def new_session_id() -> str:
    return f"session_{new_token()}"


def checked_session_id(text: str) -> str:
    """Return the id of a session, which is also the name of its directory.

    Raises:
        InvalidSessionIdError: it breaks the rules for ids.
    """
    if not isinstance(text, str) or not is_session_id(text):
        raise InvalidSessionIdError(
            f"Invalid session id {text!r}",
            hint="an id begins with a letter or digit and has at most 200 of letters, digits and . _ -",
        )
    return text


def now() -> str:
    """Return this moment as it is stored."""
    global _second
    second, nanoseconds = divmod(time_ns(), 1_000_000_000)
    known, text = _second
    if known != second:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        _second = (second, text)
    return f"{text}.{nanoseconds // 1000:06d}Z"


def stored_time(moment: datetime) -> str:
    """Return a moment in UTC as it is stored."""
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


@dataclass(frozen=True)
class TreePlace:
    """Who holds a tree, through its root. The epoch grows with every holder; `member_id` is None without a holder.

    `address` is that of a daemon. A holder that is not `is_live` is gone, and others may take its place.
    """

    epoch: int = 0
    member_id: str | None = None
    address: str | None = None
    is_live: bool = False


NOWHERE = TreePlace()
