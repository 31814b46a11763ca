"""Which distributions brought the packages of our names: ours, or others that were installed over it or beside it.

Our distribution claims the names of its parts, `amplifier-core` and `amplifier-foundation`, at versions with a label.
Installers that are told to do so fetch the ones of the ecosystem all the same; then there are files of both.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LABEL = "+amplifier."
_OURS = "amplifier-"
_CLAIMED = ("amplifier_core-", "amplifier_foundation-")
_CONTESTED = (*_CLAIMED, "amplifierd-")
_SUFFIX = ".dist-info"


class MixedInstallation(NamedTuple):
    """Distributions of others that bring packages of our names, with what they did to ours.

    `others` are names and versions, `replaced` the files of ours that are another's now, or gone, and `remedy` is what
    to type, line by line. `required` says which distributions ask for the contested names, and in which versions.
    """

    others: tuple[str, ...]
    replaced: tuple[str, ...]
    remedy: tuple[str, ...]
    required: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = " and ".join(self.others) or "what was uninstalled"
        if not self.replaced:
            text = (
                f"{named} and Amplifier are installed into the same files; Amplifier's are in place now, and the next"
            )
            text += " upgrade or uninstall of either breaks the other"
        else:
            more = f" and {len(self.replaced) - 1} more" if len(self.replaced) > 1 else ""
            text = f"{named} replaced files of Amplifier: {self.replaced[0]}{more}"
        lines = [text]
        if self.required:
            asked = "; ".join(self.required)
            lines.append(
                f"  note: {asked}; what asks for another version than ours brings it back, so take that out first"
            )
        return "\n".join((*lines, "  fix: type", *(f"    {line}" for line in self.remedy)))


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
    expected = {path: found for name in (*ours, *claims) for path, found in recorded_files(folder / name).items()}
    replaced = []
    for package in (name.rstrip("-") for name in _CONTESTED):
        own = {
            path: found for path, found in expected.items() if path.startswith(f"{package}/") and path.endswith(".py")
        }
        replaced += [path for path, found in own.items() if _hash_of(folder / path) != found]
        shadow = folder / package / "__init__.py"
        if not own and shadow.is_file() and _is_imported(package, shadow):
            replaced.append(f"{package}/__init__.py")
    if not others and not replaced:
        return None
    named = tuple(sorted(" ".join(name.removesuffix(_SUFFIX).split("-", 1)).replace("_", "-") for name in others))
    remedy, required = _remedy(folder, ours, named), tuple(_required_by_others(folder))
    return MixedInstallation(named, tuple(sorted(replaced)), remedy, required)


def _required_by_others(folder: Path) -> Iterator[str]:
    """Yield what the distributions of others say that they need of the contested names."""
    import re

    wanted = re.compile(r"^Requires-Dist: *(amplifier[-_.](?:core|foundation)\b[^;\n]*)", re.MULTILINE | re.IGNORECASE)
    for info in sorted(folder.glob(f"*{_SUFFIX}")):
        if not info.name.startswith((_OURS, *_CONTESTED)):
            lines = [line.strip() for line in wanted.findall(_text(info / "METADATA").partition("\n\n")[0])]
            if lines:
                yield f"{info.name.partition('-')[0].replace('_', '-')} requires {' and '.join(lines)}"


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
    """Return the commands that leave ours alone in place, for the installer that was used.

    Ours is installed by itself: an installer that is given what requires our parts, too, takes those of its index.
    """
    import shlex
    from pathlib import Path

    parts = " ".join(sorted({"amplifier-core", "amplifier-foundation", *(each.split()[0] for each in others)}))
    source = _source(folder / ours[0]) if ours else parts
    if (pipx := Path(sys.prefix, "pipx_metadata.json")).is_file():
        beside = [shlex.quote(each) for each in _injected(pipx)]
        again = (f"pipx inject amplifier {' '.join(beside)}",) if beside else ()
        return ("pipx uninstall amplifier", f"pipx install {source}", *again)
    if (receipt := Path(sys.prefix, "uv-receipt.toml")).is_file():
        options = "".join(f" --with {shlex.quote(each)}" for each in _beside(receipt))
        again = (f"uv tool install{options} {source}",) if options else ()
        return ("uv tool uninstall amplifier", f"uv tool install {source}", *again)
    python = shlex.quote(sys.executable)
    if ours and _text(folder / ours[0] / "INSTALLER").strip() == "uv":
        uninstall = f"uv pip uninstall --python {python}"  # parts first: uv wants to see records that ours takes along
        return (f"{uninstall} {parts}", f"{uninstall} amplifier", f"uv pip install --python {python} {source}")
    pip = f"{python} -m pip"
    uninstall = f"{pip} uninstall --yes amplifier {parts}"
    return (uninstall, uninstall, f"{pip} install {source}")  # each time it takes one of two that share a name


def _source(info: Path) -> str:
    """Return what our distribution was installed from, as an argument of an installer."""
    import json
    import shlex
    from urllib.parse import unquote

    try:
        origin = json.loads(_text(info / "direct_url.json"))
        url, vcs = str(origin["url"]), origin.get("vcs_info")
        if vcs:
            return shlex.quote(f"{vcs['vcs']}+{url}@{vcs['commit_id']}")
        path = shlex.quote(unquote(url.removeprefix("file://")))
        return f"--editable {path}" if origin.get("dir_info", {}).get("editable") else path
    except (ValueError, KeyError, TypeError, AttributeError):
        return info.name.removesuffix(_SUFFIX).replace("-", "==", 1)


def _injected(metadata: Path) -> list[str]:
    """Return what pipx was told to put beside ours."""
    import json

    try:
        injected = json.loads(_text(metadata))["injected_packages"]
        return [str(each["package_or_url"]) for each in injected.values()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def _beside(receipt: Path) -> list[str]:
    """Return what a tool of uv was told to install beside ours."""
    import tomllib

    try:
        requirements = tomllib.loads(_text(receipt))["tool"]["requirements"]
        return [_argument(each) for each in requirements if each["name"] != "amplifier"]
    except (ValueError, KeyError, TypeError):
        return []


def _argument(requirement: dict[str, str]) -> str:
    """Return an entry of a receipt as a requirement."""
    if place := requirement.get("directory") or requirement.get("path") or requirement.get("editable"):
        return place
    if git := requirement.get("git"):
        url, _, query = git.partition("?")
        return f"git+{url}@{query.removeprefix('rev=')}" if query.startswith("rev=") else f"git+{url}"
    return f"{requirement['name']}{requirement.get('specifier', '')}"


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
