"""How a folder is shown to a model."""

from pathlib import Path


def format_directory_listing(path: Path, max_entries: int | None = None) -> str:
    """Return a folder's entries, one per line, folders first; at most `max_entries` of them.

    Raises:
        ValueError: the path is not a folder.
    """
    if not path.is_dir():
        raise ValueError(f"Not a directory: {path}")
    return "\n".join([f"Directory: {path}", "", *_lines(path, max_entries)])


def _lines(path: Path, max_entries: int | None) -> list[str]:
    try:
        entries = [(not entry.is_dir(), entry.name.lower(), entry.name) for entry in path.iterdir()]
    except PermissionError:
        return ["  (permission denied)"]
    if not entries:
        return ["  (empty directory)"]
    shown = sorted(entries)[:max_entries]
    lines = [f"  {'FILE' if is_file else 'DIR '} {name}" for is_file, _, name in shown]
    left = len(entries) - len(shown)
    return [*lines, f"  ... {left} more"] if left else lines
