"""The shipped collection, read as a home reads it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from amplifierd.identifiers import ProfileId
from amplifierd.issues import Issue
from amplifierd.profiles.collections.extraction import Discovery, discover
from amplifierd.profiles.collections.registry_file import find_shipped_collection
from amplifierd.profiles.documents.document import ProfileDocument
from amplifierd.profiles.documents.inheritance import MergedProfile, resolve_profile

PROFILES = ("base", "coding", "foundation", "offline", "research")


@dataclass(frozen=True)
class Shipped:
    """The collection's files and profiles; where inheritance finds them."""

    root: Path
    found: Discovery = field(repr=False)

    @property
    def profiles(self) -> dict[str, ProfileDocument]:
        return self.found.profiles

    def merged(self, name: str) -> MergedProfile:
        return resolve_profile(self, ProfileId("foundation", name))

    def read(self, profile_id: ProfileId) -> ProfileDocument | None:
        return self.profiles.get(profile_id.name) if profile_id.collection == "foundation" else None

    def read_overlay(self, profile_id: ProfileId) -> ProfileDocument | None:
        return None

    def unreadable(self, profile_id: ProfileId) -> Sequence[Issue]:
        return ()

    def owners(self, name: str) -> Sequence[ProfileId]:
        return [self.profiles[name].profile_id] if name in self.profiles else []


@pytest.fixture
def shipped() -> Shipped:
    root = find_shipped_collection()
    assert root is not None
    return Shipped(root, discover(root, "foundation", boundary=root))


@pytest.fixture(params=PROFILES)
def name(request: pytest.FixtureRequest) -> str:
    """Each shipped profile's name in turn."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys with which the vendors' providers mount; nobody is asked anything."""
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(variable, "not-a-real-key")
    for variable in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
