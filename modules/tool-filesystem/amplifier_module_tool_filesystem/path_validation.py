"""Whether a path may be touched, as a question that other code can ask as well."""

from collections.abc import Sequence
from pathlib import Path

from amplifier_kit.tools.paths import PathRules, resolve_roots

DENIED = "Access denied: {path} is within denied directories"
OUTSIDE_WRITE = "Access denied: {path} is not within allowed write paths"
OUTSIDE_READ = "Access denied: {path} is not within allowed read paths"


def is_path_allowed(
    path: str | Path,
    allowed_paths: Sequence[str | Path] | None,
    denied_paths: Sequence[str | Path] | None,
    allowed_files: Sequence[str | Path] | None = None,
) -> tuple[bool, str | None]:
    """Say whether a path may be written, and if not, why.

    Relative paths start from the process's working directory; `allowed_paths` None allows everything that is not
    denied.
    """
    base = Path.cwd()
    rules = PathRules(
        allowed=None if allowed_paths is None else resolve_roots(allowed_paths, base),
        denied=resolve_roots(denied_paths or (), base),
        files=resolve_roots(allowed_files or (), base),
    )
    verdict = rules.verdict(resolve_roots([path], base)[0])
    if verdict == "allowed":
        return True, None
    return False, (DENIED if verdict == "denied" else OUTSIDE_WRITE).format(path=path)
