"""What the foundation raises on purpose, sorted by who can act.

AmplifierError
└── BundleError                    anything about bundles and their sources
    ├── BundleNotFoundError          author of the source: it cannot be located or fetched
    │   └── RefResolutionError         the source layer's form, with `ref` and `reason`
    ├── BundleLoadError              author of the bundle: found, and unusable
    ├── BundleValidationError        author of the bundle: the structure is wrong
    └── BundleDependencyError        author of the bundle: an include, a cycle, a namespace
"""

from typing import Literal, get_args

from amplifier_core.exceptions import AmplifierError
from amplifier_system.urls import shown

RefResolutionReason = Literal[
    "syntax",
    "not-found",
    "network",
    "auth",
    "timeout",
    "offline",
    "subpath-missing",
    "too-large",
    "unsafe-path",
    "backend-missing",
    "integrity",
]
REF_RESOLUTION_REASONS: tuple[str, ...] = get_args(RefResolutionReason)


class BundleError(AmplifierError):
    """Base class: catch this to handle anything that is wrong with a bundle or its source.

    A source in the text is shown without credentials, wherever they come from.
    """

    def reword(self, message: str, *, hint: str = "") -> None:
        super().reword(shown(message), hint=shown(hint))


class BundleNotFoundError(BundleError):
    """A source cannot be located or fetched."""


class RefResolutionError(BundleNotFoundError):
    """A reference does not lead to content; `ref` is the reference as written, `reason` why, as a stable word.

    In `ref`, too, there are no credentials.
    """

    def __init__(
        self, message: str = "", ref: str = "", reason: RefResolutionReason = "not-found", *, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.ref = shown(ref)
        self.reason: RefResolutionReason = reason


class BundleLoadError(BundleError):
    """A bundle was found and cannot be used: its layout or format is wrong."""


class BundleValidationError(BundleError):
    """A bundle's structure is wrong."""


class BundleDependencyError(BundleError):
    """An include cannot be satisfied: a cycle, a namespace without the path, a strict failure."""
