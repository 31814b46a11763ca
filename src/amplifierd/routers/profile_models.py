"""Profiles as requests and answers have them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from amplifierd.daemon.profile_edits import profile_text
from amplifierd.http.models import Answer, Body, Page

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
    """A profile with what it says. With `resolved`, that includes what it inherits."""

    sections: dict[str, Any]
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
    markdown: str | None = None

    @model_validator(mode="after")
    def _is_one_of_both(self) -> ProfileText:
        if self.markdown is not None and self.model_fields_set - {"markdown", "name"}:
            raise ValueError("markdown is the whole profile: give nothing else but a name")
        if self.markdown is None and self.name is None:
            raise ValueError("name or markdown is needed")
        return self

    def text(self) -> str:
        return self.markdown if self.markdown is not None else profile_text(self.model_dump(exclude={"markdown"}))


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
