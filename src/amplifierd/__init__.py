"""The library behind the command and the daemon: profiles, plans, sessions, workers and the server.

`open_home` is the front door.
"""

from typing import TYPE_CHECKING

from amplifier_system.lazy_names import lazy_names

if TYPE_CHECKING:
    from .app import create_app
    from .home import Home, open_home
    from .identifiers import ProfileId
    from .issues import Issue
    from .paths import Paths
    from .plans.validation import validate_mount_plan
    from .profiles.builds.module_resolver import DaemonModuleSourceResolver
    from .sessions.runner import ExecutionRunner
    from .settings import Settings

__all__ = [
    "DaemonModuleSourceResolver",
    "ExecutionRunner",
    "Home",
    "Issue",
    "Paths",
    "ProfileId",
    "Settings",
    "create_app",
    "open_home",
    "validate_mount_plan",
]

__getattr__ = lazy_names(
    __name__,
    {
        ".app": ("create_app",),
        ".home": ("Home", "open_home"),
        ".identifiers": ("ProfileId",),
        ".issues": ("Issue",),
        ".paths": ("Paths",),
        ".plans.validation": ("validate_mount_plan",),
        ".profiles.builds.module_resolver": ("DaemonModuleSourceResolver",),
        ".sessions.runner": ("ExecutionRunner",),
        ".settings": ("Settings",),
    },
)
