"""What the compiles of a home have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from amplifierd.documents.literal_secrets import KeepSecret
from amplifierd.identifiers import ProfileId
from amplifierd.paths import Paths
from amplifierd.settings import CompileSettings

from .resources import ResourceLocator


@dataclass(frozen=True)
class Workshop:
    """What every compile of a home works with; `in_use` says whether a profile is in use, `keep` stores a secret."""

    paths: Paths
    locator: ResourceLocator
    settings: CompileSettings
    offline: bool
    in_use: Callable[[ProfileId], bool]
    keep: KeepSecret
