"""The collection that is shipped with the distribution."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

FOUNDATION = "foundation"
"""The id of the collection shipped with the distribution; an entry of that name replaces it."""

BUILTIN_SOURCE = f"builtin:{FOUNDATION}"
"""How the source of the shipped collection is shown; it is not a reference."""


def find_shipped_collection() -> Path | None:
    """Return the directory of the shipped collection: in the installed package, else in the checkout it runs from."""
    package = resources.files("amplifierd")
    if not isinstance(package, Path):
        return None
    candidates = (package / "_registry", package.parent.parent / "registry")
    return next((path for path in candidates if path.is_dir()), None)
