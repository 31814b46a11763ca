"""Errors about a copy of a module, told with the words of those who wrote the module and the plan.

A module source may say more than the folder: `reference`, what a person wrote to say where the module comes from, and
`advise(error)`, which returns what to do about an error of an import, or None.
"""

import os
import re
from pathlib import Path

from .exceptions import AmplifierError


def tell_origin(error: AmplifierError, folder: Path, source: object) -> None:
    """Have an error name the module's reference instead of the folder with the copy, and give the source's advice."""
    reference, advise = getattr(source, "reference", None), getattr(source, "advise", None)
    hint = advise(error.__cause__) if callable(advise) and isinstance(error.__cause__, ImportError) else None
    message, hint = error.message, hint or error.hint
    if isinstance(reference, str) and reference:
        message, hint = retold(message, folder, reference), retold(hint, folder, reference)
    error.reword(message, hint=hint)


def retold(text: str, folder: Path, reference: str) -> str:
    """Return a text with `reference` in place of the folder; a file in it becomes `<file> of <reference>`."""
    places = sorted({str(folder), os.path.realpath(folder)}, key=len, reverse=True)
    pattern = f"(?:{'|'.join(map(re.escape, places))})(?:/(?P<file>[^\\s'\",;:]+))?"

    def tell(match: re.Match[str]) -> str:
        return f"{match['file']} of {reference}" if match["file"] else reference

    return re.sub(pattern, tell, text)
