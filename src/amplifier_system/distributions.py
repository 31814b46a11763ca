"""Which distributions brought the packages of our names: ours, or others that were installed over it or beside it.

Our distribution claims the names of its parts, `amplifier-core` and `amplifier-foundation`, at versions with a label.
Installers that are told to do so fetch the ones of the ecosystem all the same; then there are files of both.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

LABEL = "+amplifier."
_OURS = "amplifier-"
_CLAIMED = ("amplifier_core-", "amplifier_foundation-")
_CONTESTED = (*_CLAIMED, "amplifierd-")
_SUFFIX = ".dist-info"


class MixedInstallation(NamedTuple):
    """Distributions of others that bring packages of our names, with what they did to ours.

    `others` are names and versions, `replaced` the files of ours that are another's now, or gone, and `remedy` is what
    to type, line by line.
    """

    others: tuple[str, ...]
    replaced: tuple[str, ...]
    remedy: tuple[str, ...]

    def __str__(self) -> str:
        named = " and ".join(self.others) or "what was uninstalled"
        if not self.replaced:
            told = (
                f"{named} and Amplifier are installed into the same files; Amplifier's are in place now, and the next"
            )
            told += " upgrade or uninstall of either breaks the other"
        else:
            more = f" and {len(self.replaced) - 1} more" if len(self.replaced) > 1 else ""
            told = f"{named} replaced files of Amplifier: {self.replaced[0]}{more}"
        return "\n".join((told, "  fix: type", *(f"    {line}" for line in self.remedy)))


def mixed_installation() -> MixedInstallation | None:
    """Look whether files of ours and of others are mixed: one look at a directory, unless something hints at it.

    An environment that Amplifier is not installed into has nothing to mix.
    """
    for folder in sys.path:
        if not folder.endswith("-packages"):
            continue
        try:
            names = os.listdir(folder)  # noqa: PTH208 - asked at every start, and names are enough
        except OSError:
            continue
        infos = [name for name in names if name.startswith("amplifier") and name.endswith(_SUFFIX)]
        ours = [name for name in infos if name.startswith(_OURS)]
        others = [name for name in infos if name.startswith(_CONTESTED) and LABEL not in name]
        claims = [name for name in infos if name.startswith(_CLAIMED) and LABEL in name]
        if (ours or claims) and (others or len(claims) < len(_CLAIMED)):
            from pathlib import Path  # here and below: loaded only where something hints at a mixture

            return _compared(Path(folder), ours, claims, others)
    return None


def refuse_mixed_installation() -> None:
    """Raise `ImportError` where files of ours were replaced, before one of them fails in a way that tells nothing."""
    if (found := mixed_installation()) is not None and found.replaced:
        raise ImportError(str(found))


def can_start() -> bool:
    """Tell whoever started a command about a mixed installation, and say whether the command can work."""
    found = mixed_installation()
    if found is not None and sys.stderr is not None:
        sys.stderr.write(f"{'error' if found.replaced else 'warning'}: {found}\n")
    return found is None or not found.replaced


def recorded_files(info: Path) -> dict[str, str]:
    """Return the files that a distribution brought, by the path below its directory, with their hashes."""
    import csv

    try:
        with (info / "RECORD").open(encoding="utf-8", newline="") as file:
            return {row[0]: row[1] for row in csv.reader(file) if len(row) > 1 and row[1]}
    except OSError:
        return {}


def _compared(folder: Path, ours: list[str], claims: list[str], others: list[str]) -> MixedInstallation | None:
    expected = {path: told for name in (*ours, *claims) for path, told in recorded_files(folder / name).items()}
    replaced = []
    for package in (name.rstrip("-") for name in _CONTESTED):
        own = {path: told for path, told in expected.items() if path.startswith(f"{package}/") and path.endswith(".py")}
        replaced += [path for path, told in own.items() if _hash_of(folder / path) != told]
        shadow = folder / package / "__init__.py"
        if not own and shadow.is_file() and _is_imported(package, shadow):
            replaced.append(f"{package}/__init__.py")
    if not others and not replaced:
        return None
    named = tuple(sorted(" ".join(name.removesuffix(_SUFFIX).split("-", 1)).replace("_", "-") for name in others))
    return MixedInstallation(named, tuple(sorted(replaced)), _remedy(folder, ours, named))


def _hash_of(file: Path) -> str | None:
    import base64
    import hashlib

    try:
        digest = hashlib.sha256(file.read_bytes()).digest()
    except OSError:
        return None
    return f"sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def _is_imported(package: str, file: Path) -> bool:
    """True if the package of that name comes from this file; an editable installation lies elsewhere."""
    from importlib.util import find_spec

    spec = find_spec(package)
    return spec is not None and spec.origin == str(file)


def _remedy(folder: Path, ours: list[str], others: tuple[str, ...]) -> tuple[str, ...]:
    """Return the commands that leave ours alone in place, for the installer that was used."""
    from pathlib import Path

    if Path(sys.prefix, "pipx_metadata.json").is_file():
        return ("pipx reinstall amplifier",)
    if Path(sys.prefix, "uv-receipt.toml").is_file():
        return ("uv tool upgrade --reinstall amplifier",)
    parts = " ".join(sorted({"amplifier-core", "amplifier-foundation", *(each.split()[0] for each in others)}))
    source = _source(folder / ours[0]) if ours else parts
    installer = _text(folder / ours[0] / "INSTALLER").strip() if ours else ""
    if installer == "uv":
        python = f"--python {sys.executable}"
        uninstall = f"uv pip uninstall {python}"  # parts first: ours takes their records along, which uv wants to see
        return (f"{uninstall} {parts}", f"{uninstall} amplifier", f"uv pip install {python} {source}")
    pip = f"{sys.executable} -m pip"
    uninstall = f"{pip} uninstall --yes amplifier {parts}"
    return (uninstall, uninstall, f"{pip} install {source}")  # each time it takes one of two that share a name


def _source(info: Path) -> str:
    """Return what our distribution was installed from, as an argument of an installer."""
    import json

    try:
        origin = json.loads(_text(info / "direct_url.json"))
        url, vcs = str(origin["url"]), origin.get("vcs_info")
        if vcs:
            return f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
        path = url.removeprefix("file://")
        return f"--editable {path}" if origin.get("dir_info", {}).get("editable") else path
    except (ValueError, KeyError, TypeError, AttributeError):
        return info.name.removesuffix(_SUFFIX).replace("-", "==", 1)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
