"""The profile lifecycle: collections of profiles, compiled into builds, generated into mount plans.

`open_home` is the front door.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .home import Home, open_home
from .identifiers import ProfileId
from .issues import Issue
from .paths import Paths
from .settings import Settings

if TYPE_CHECKING:
    from .builds.module_resolver import DaemonModuleSourceResolver
    from .plans.validation import validate_mount_plan

__all__ = [
    "DaemonModuleSourceResolver",
    "Home",
    "Issue",
    "Paths",
    "ProfileId",
    "Settings",
    "open_home",
    "validate_mount_plan",
]

_LAZY = {"DaemonModuleSourceResolver": ".builds.module_resolver", "validate_mount_plan": ".plans.validation"}
"""Names that are loaded on first use, each with its module."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
