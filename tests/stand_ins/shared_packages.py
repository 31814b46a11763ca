"""What our environment has installed, for another one: linked into it, or as wheels. Neither needs a download."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed_by(*names: str) -> Iterator[Distribution]:
    """Yield the distributions that some declare to need, all the way down; `name[extra]` counts an extra, too."""
    asked = [Requirement(name) for name in names]
    found = {canonicalize_name(each.name) for each in asked}
    waiting = [(each.name, frozenset(each.extras)) for each in asked]
    while waiting:
        current, extras = waiting.pop()
        for text in distribution(current).requires or ():
            requirement = Requirement(text)
            wanted = [{"extra": extra} for extra in ("", *extras)]
            if requirement.marker and not any(map(requirement.marker.evaluate, wanted)):
                continue
            if (key := canonicalize_name(requirement.name)) not in found:
                found.add(key)
                waiting.append((requirement.name, frozenset(requirement.extras)))
                yield distribution(requirement.name)


def link(needed: Distribution, site: Path) -> None:
    """Let an environment share what this one has of a distribution; its metadata is copied, as uv follows no links."""
    for top in {file.parts[0] for file in needed.files or ()} - {"..", "__pycache__"}:
        source = Path(str(needed.locate_file(top)))
        if top.endswith(".dist-info"):
            shutil.copytree(source, site / top, dirs_exist_ok=True)
        elif not (site / top).exists():
            (site / top).symlink_to(source)
    for script in (file for file in needed.files or () if file.parts[:3] == ("..", "..", "..")):
        target = site.joinpath(*script.parts)
        if not os.path.lexists(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(Path(str(needed.locate_file(script))).resolve())


def write_wheel_of(installed: Distribution, directory: Path) -> None:
    """Write a wheel with the files of an installed distribution, but for commands and bytecode."""
    lines = (installed.read_text("WHEEL") or "").splitlines()
    tags = [line.removeprefix("Tag:").strip().split("-") for line in lines if line.startswith("Tag:")]
    tag = "-".join(".".join(sorted(set(parts))) for parts in zip(*tags, strict=True))
    name = installed.metadata["Name"].replace("-", "_")
    files = [file for file in installed.files or () if file.parts[0] != ".." and "__pycache__" not in file.parts]
    info = next(file.parts[0] for file in files if file.parts[0].endswith(".dist-info"))
    with zipfile.ZipFile(directory / f"{name}-{installed.version}-{tag}.whl", "w") as wheel:
        for file in files:
            if file.name != "RECORD" and Path(str(installed.locate_file(file))).is_file():
                wheel.write(str(installed.locate_file(file)), str(file))
        wheel.writestr(f"{info}/RECORD", "".join(f"{each},,\n" for each in [*wheel.namelist(), f"{info}/RECORD"]))
