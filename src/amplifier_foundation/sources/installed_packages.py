"""Installed packages, by the name they are imported or distributed under."""

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

from amplifier_foundation.exceptions import RefResolutionError

from .cache_context import find_subpath
from .reference import NameReference
from .resolved import ResolvedRef
from .store import now


def find_package(name: str) -> Path | None:
    """Return the directory of an installed package; nothing is imported. Namespace packages have none."""
    return _directory_of(name.replace("-", "_")) or _directory_of_distribution(name)


_HOW_TO_NAME = "correct the name, or write an address: git+https://host/org/repo@v1"


def resolve_name(reference: NameReference, ref: str, *, base_dir: Path | None) -> ResolvedRef:
    """Return the directory of an installed package, or what the subpath names in it.

    Raises:
        RefResolutionError: there is no such package. A name is never tried as a path.
    """
    package = find_package(reference.name)
    if package is None:
        message = f"No handler for URI: {ref}: neither a registered bundle nor an installed package has that name"
        beside = (base_dir or Path.cwd()) / str(reference)
        hint = f"for the path write './{reference}'" if beside.exists() else _HOW_TO_NAME
        raise RefResolutionError(message, ref, "not-found", hint=hint)
    path = find_subpath(package, reference.subpath, ref)
    return ResolvedRef(
        ref=ref,
        kind="installed",
        path=path,
        root=package,
        resolved_at=now(),
        subpath=reference.subpath,
        from_cache=True,
    )


def _directory_of(import_name: str) -> Path | None:
    if not import_name.isidentifier() or import_name in sys.stdlib_module_names:
        return None
    try:
        spec = importlib.util.find_spec(import_name)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not spec.submodule_search_locations:
        return None
    return Path(spec.origin).resolve().parent


def _directory_of_distribution(name: str) -> Path | None:
    """Return the package that a distribution of another name brings: of several the first that is public."""
    try:
        distribution = importlib.metadata.distribution(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None
    listed = (distribution.read_text("top_level.txt") or "").split()
    tops = listed or sorted({file.parts[0] for file in distribution.files or () if file.name == "__init__.py"})
    public_first = sorted(tops, key=lambda top: top.startswith("_"))
    return next((directory for top in public_first if (directory := _directory_of(top)) is not None), None)
