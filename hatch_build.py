"""What the build finds out by looking: the packages in `src/`, for every folder in `modules/` its entry point, and for
every folder in `packages/` the name that the wheel claims."""

import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.plugin.interface import MetadataHookInterface

GROUP = "amplifier.modules"
WHEEL = "Wheel-Version: 1.0\nGenerator: amplifier\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
INSTALLERS_OWN = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_build.json", "uv_cache.json")
"""What installers write beside a distribution's metadata, and remove if they find it listed."""


class ModuleEntryPoints(MetadataHookInterface):
    """Adds to the configured entry points those that the modules declare in their own `pyproject.toml`."""

    def update(self, metadata: dict[str, Any]) -> None:
        found: dict[str, str] = {}
        for path in sorted(Path(self.root).glob("modules/*/pyproject.toml")):
            project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
            found.update(project["entry-points"][GROUP])
        metadata["entry-points"] = {**self.config["entry-points"], GROUP: found}


class WheelContents(BuildHookInterface[BuilderConfig]):
    """Ships every folder that matches one of the configured patterns and is a package, and claims names.

    The distributions in `packages/` are parts of this one. Their metadata goes along, in folders as installers write
    them, so that what requires one of those names finds it installed and fetches no other distribution over our files.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        self.build_config.target_config["packages"] = sorted(
            folder.relative_to(root).as_posix()
            for pattern in self.config["packages"]
            for folder in root.glob(pattern)
            if (folder / "__init__.py").is_file()
        )
        self._claims = Path(tempfile.mkdtemp())
        for project in sorted(root.glob("packages/*/pyproject.toml")):
            _write_claim(WheelBuilder(str(project.parent)), self._claims)
        included = build_data.setdefault("force_include_editable" if version == "editable" else "force_include", {})
        included[str(self._claims)] = f"{self.metadata.name}-{self.metadata.version}.data/purelib"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self._claims)


def _write_claim(part: WheelBuilder, folder: Path) -> None:
    """Write the metadata of a distribution, complete but for its code."""
    claim = folder / f"{part.artifact_project_id}.dist-info"
    texts = {"METADATA": part.config.core_metadata_constructor(part.metadata), "WHEEL": WHEEL}
    if entry_points := part.construct_entry_points_file():
        texts["entry_points.txt"] = entry_points
    for name in part.metadata.core.license_files:
        texts[f"licenses/{name}"] = (Path(part.root) / name).read_text(encoding="utf-8")
    recorded = sorted({*texts, *INSTALLERS_OWN})
    texts |= {"INSTALLER": "amplifier\n", "RECORD": "".join(f"{claim.name}/{name},,\n" for name in recorded)}
    for name, text in texts.items():
        (claim / name).parent.mkdir(parents=True, exist_ok=True)
        (claim / name).write_text(text, encoding="utf-8")
