"""What the library raises on purpose, sorted by who can act. References that lead nowhere are the foundation's
`RefResolutionError`.

AmplifierError
├── ProfileError                          anything about one profile
│   ├── ProfileNotFoundError                caller: there is no profile of that id
│   ├── ProfileValidationError              author of the profile: carries every issue found
│   │   └── ProfileCircularInheritanceError   author: profiles extend each other
│   └── ProfileCompilationError             author or network: the build could not be made; `code` says why
├── CollectionError                       owner of the home: a collection cannot be registered, found or read
├── MountPlanError                        author of the plan: carries every issue found
├── AgentNotFoundError (ValueError)       caller: the plan has no such agent
├── FormatUnsupportedError                owner of the home: a newer version wrote the file
├── SettingsError                         owner of the home: the settings file or a variable is invalid
├── SessionNotFoundError                  caller: there is no session of that id
└── ExecutionError                        a turn could not be run
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amplifier_core.exceptions import AmplifierError
from amplifier_core.exceptions import MountPlanError as KernelMountPlanError
from amplifier_foundation.exceptions import RefResolutionError

if TYPE_CHECKING:
    from .issues import Issue

__all__ = [
    "AgentNotFoundError",
    "CollectionError",
    "ExecutionError",
    "FormatUnsupportedError",
    "MountPlanError",
    "ProfileCircularInheritanceError",
    "ProfileCompilationError",
    "ProfileError",
    "ProfileNotFoundError",
    "ProfileValidationError",
    "RefResolutionError",
    "SessionNotFoundError",
    "SettingsError",
]


class ProfileError(AmplifierError):
    """Something is wrong with one profile."""


class ProfileNotFoundError(ProfileError):
    """There is no profile of that id."""


class ProfileValidationError(ProfileError):
    """A profile breaks rules; `issues` has all of them, warnings included."""

    def __init__(self, message: str, issues: Sequence[Issue] = (), *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.issues = tuple(issues)


class ProfileCircularInheritanceError(ProfileValidationError):
    """Profiles extend each other in a circle."""


class ProfileCompilationError(ProfileError):
    """A profile could not be built; the previous build, if any, is untouched. `code` is a stable word."""

    def __init__(
        self, message: str, *, code: str = "compile-failed", problems: Sequence[str] = (), hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.problems = tuple(problems)


class CollectionError(AmplifierError):
    """A collection cannot be registered, found or read. `code` is a stable word."""

    def __init__(self, message: str, *, code: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


class MountPlanError(KernelMountPlanError):
    """A mount plan breaks rules; `issues` has all of them."""

    def __init__(self, message: str, issues: Sequence[Issue] = (), *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.issues = tuple(issues)


class AgentNotFoundError(AmplifierError, ValueError):
    """A plan has no agent of that name."""


class FormatUnsupportedError(AmplifierError):
    """A stored file has a newer format than this version reads; it was left as it is."""


class SettingsError(AmplifierError):
    """The settings file or a variable of the environment is invalid; the message names the key."""


class SessionNotFoundError(AmplifierError):
    """There is no session of that id."""


class ExecutionError(AmplifierError):
    """A turn could not be run."""
