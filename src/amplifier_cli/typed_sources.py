"""Sources as people type them: a path counts from where they are."""

from __future__ import annotations

from pathlib import Path

from amplifier_foundation.sources import FileReference, NameReference, parse_reference

from .failures import UsageError


def absolute_source(typed: str) -> str:
    """Return a source that means the same from anywhere.

    Raises:
        RefResolutionError: it is not a source.
        UsageError: it is a bare name, and a path of that name exists: a name never is a path.
    """
    reference = parse_reference(typed)
    if isinstance(reference, NameReference) and Path(typed).exists():
        raise UsageError(f"{typed!r} is a name, not a path", hint=f"write ./{typed} for a path here")
    if not isinstance(reference, FileReference):
        return typed
    path = str(Path(reference.path).expanduser().absolute())
    return str(FileReference(path, reference.subpath))
