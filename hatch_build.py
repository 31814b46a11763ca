"""What the build finds out by looking: the packages in `src/` and, for every folder in `modules/`, its entry point."""

import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

GROUP = "amplifier.modules"


class ModuleEntryPoints(MetadataHookInterface):
    """Adds to the configured entry points those that the modules declare in their own `pyproject.toml`."""

    def update(self, metadata: dict[str, Any]) -> None:
        found: dict[str, str] = {}
        for path in sorted(Path(self.root).glob("modules/*/pyproject.toml")):
            project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
            found.update(project["entry-points"][GROUP])
        metadata["entry-points"] = {**self.config["entry-points"], GROUP: found}


class Packages(BuildHookInterface[BuilderConfig]):
    """Ships every folder that matches one of the configured patterns and is a package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        self.build_config.target_config["packages"] = sorted(
            folder.relative_to(root).as_posix()
            for pattern in self.config["packages"]
            for folder in root.glob(pattern)
            if (folder / "__init__.py").is_file()
        )
