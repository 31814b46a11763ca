"""The profile lifecycle: collections of profiles, compiled into builds, generated into mount plans.

`open_home` is the front door.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .builds.module_resolver import DaemonModuleSourceResolver
    from .home import Home, open_home
    from .identifiers import ProfileId
    from .issues import Issue
    from .paths import Paths
    from .plans.validation import validate_mount_plan
    from .settings import Settings

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

_MODULES = {
    "DaemonModuleSourceResolver": ".builds.module_resolver",
    "Home": ".home",
    "Issue": ".issues",
    "Paths": ".paths",
    "ProfileId": ".identifiers",
    "Settings": ".settings",
    "open_home": ".home",
    "validate_mount_plan": ".plans.validation",
}
"""Where the names come from: each is loaded on first use, since most programs need only some of what is in here."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
