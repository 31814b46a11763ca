"""A profile as it is listed and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amplifierd.documents.document import ProfileDocument
from amplifierd.identifiers import ProfileId
from amplifierd.issues import Issue, errors


@dataclass(frozen=True)
class Profile:
    """A profile as it is written, and whether it can be compiled; `extends` is the parent as written."""

    profile_id: ProfileId
    path: Path
    version: str
    description: str
    extends: str | None
    model: str | None
    valid: bool
    is_compiled: bool
    issues: tuple[Issue, ...] = ()
    ui: Mapping[str, Any] | None = None

    @classmethod
    def of(
        cls, document: ProfileDocument, issues: Sequence[Issue], *, is_compiled: bool, ui: Mapping[str, Any]
    ) -> Profile:
        metadata = document.metadata
        return cls(
            profile_id=document.profile_id,
            path=document.path,
            version=str(metadata.get("version") or ""),
            description=str(metadata.get("description") or ""),
            extends=document.extends,
            model=metadata.get("model"),
            valid=not errors(issues),
            is_compiled=is_compiled,
            issues=tuple(issues),
            ui=ui,
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "profile_id": str(self.profile_id),
            "collection": self.profile_id.collection,
            "name": self.profile_id.name,
            "version": self.version,
            "description": self.description,
            "extends": self.extends,
            "model": self.model,
            "valid": self.valid,
            "is_compiled": self.is_compiled,
            "issues": [issue.to_dict() for issue in self.issues],
            "ui": dict(self.ui or {}),
        }
