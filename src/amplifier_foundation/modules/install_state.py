"""What is installed for modules, under the name by which applications ask to have it checked again."""

from pathlib import Path


class InstallStateManager:
    """Nothing is noted that could be wrong: an environment is complete or made again whenever a module needs it."""

    def __init__(self, cache_dir: Path) -> None:
        self.cache_dir = cache_dir

    def invalidate(self, module_path: Path | None = None) -> None:
        """Do nothing: environments are shared with sessions that run, and are looked at before every use."""

    def save(self) -> None:
        """Do nothing: there is no file."""
