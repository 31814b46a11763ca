"""Profiles as requests and answers have them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from amplifierd.server.http.models import Answer, Body, Page
from amplifierd.server.profile_edits import profile_text

SCHEMA_VERSION = 2


class ProfileInfo(Answer):
    """A profile as it is listed. `status` is what its lock tells; `GET …/status` looks further."""

    id: str
    name: str
    collection_id: str
    version: str
    description: str
    schema_version: int = SCHEMA_VERSION
    source: str = Field(description="its file")
    extends: str | None = None
    is_active: bool
    is_local: bool
    is_compiled: bool
    valid: bool
    status: str
    issues: list[dict[str, Any]]
    ui: dict[str, Any]


class ProfileDetails(ProfileInfo):
    """A profile with what it says, sections of other applications too. With `resolved`, that includes what it inherits.

    What an application of its own would call by a name of ours is not told.
    """

    model_config = ConfigDict(extra="allow")

    session: dict[str, Any] = Field(default={})
    providers: list[dict[str, Any]] = Field(default=[])
    tools: list[dict[str, Any]] = Field(default=[])
    hooks: list[dict[str, Any]] = Field(default=[])
    agents: Any = Field(default={})
    context: Any = Field(default={})
    instruction: str
    inheritance_chain: list[str] | None = None
    provenance: dict[str, Any] | None = Field(
        default=None, description="by section: the file that set it, what it overrode"
    )


class ProfilePage(Page):
    profiles: list[ProfileInfo]
    default_id: str | None = Field(description="the profile of a session that names none; null when it is not known")


class ProfileChange(Body):
    """What a profile is to say; null takes a key out."""

    version: str | None = None
    description: str | None = None
    extends: str | None = None
    model: str | None = None
    session: dict[str, Any] | None = None
    providers: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    hooks: list[dict[str, Any]] | None = None
    agents: dict[str, Any] | list[str] | Literal["all", "none"] | None = None
    context: dict[str, str] | list[str] | None = None
    ui: dict[str, Any] | None = None
    exclude: dict[str, Any] | None = None
    instruction: str | None = None


class ProfileText(ProfileChange):
    """A profile: either its keys, or `markdown`, the text of its file."""

    name: str | None = None
    orchestrator: dict[str, Any] | str | None = Field(
        default=None, description="in place of `session`; then a module as `context` is the context manager"
    )
    markdown: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_short(cls, data: Any) -> Any:
        """Put orchestrator and context manager, where they stand for `session`, into it."""
        if not isinstance(data, dict) or data.get("orchestrator") is None or data.get("session") is not None:
            return data
        session, manager = {"orchestrator": data["orchestrator"]}, data.get("context")
        rest = {key: value for key, value in data.items() if key != "orchestrator"}
        if isinstance(manager, str) or (isinstance(manager, dict) and "module" in manager):
            session["context"] = rest.pop("context")
        return {**rest, "session": session}

    @model_validator(mode="after")
    def _is_one_of_both(self) -> ProfileText:
        if self.orchestrator is not None:
            raise ValueError("orchestrator is also in session: give only one of them")
        if self.markdown is not None and self.model_fields_set - {"markdown", "name"}:
            raise ValueError("markdown is the whole profile: give nothing else but a name")
        if self.markdown is None and self.name is None:
            raise ValueError("name or markdown is needed")
        return self

    def text(self) -> str:
        if self.markdown is not None:
            return self.markdown
        return profile_text(self.model_dump(exclude={"markdown", "orchestrator"}))


class WholeText(Body):
    """The text of a profile's file."""

    markdown: str


class Verdict(Answer):
    valid: bool
    issues: list[dict[str, Any]]


class CopyRequest(Body):
    new_name: str


class CompileRequest(Body):
    force: bool = Field(default=False, description="resolve everything again")


class Compiled(Answer):
    status: Literal["compiled", "unchanged"]
    profile_id: str
    build_id: str
    degraded: list[str]
    warnings: list[str]


class Reason(Answer):
    code: str
    subject: str
    action: str


class StatusInfo(Answer):
    profile_id: str
    status: Literal["missing", "stale", "fresh", "degraded", "invalid", "orphaned"]
    reasons: list[Reason]
    build_id: str | None = None
    generated_at: str | None = None
    warnings: list[str]
    issues: list[dict[str, Any]]
    moved: list[str] | None = Field(default=None, description="with check_remote: what is newer at its source")


class ActiveProfile(Body):
    profile_id: str
