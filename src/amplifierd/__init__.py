"""The profile lifecycle: collections of profiles, compiled into builds, generated into mount plans.

`open_home` is the front door.
"""

from .home import Home, open_home
from .identifiers import ProfileId
from .issues import Issue
from .paths import Paths
from .settings import Settings

__all__ = ["Home", "Issue", "Paths", "ProfileId", "Settings", "open_home"]
