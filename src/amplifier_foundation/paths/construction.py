"""Where a bundle keeps its agents and context files."""

from pathlib import Path


def construct_agent_path(base: Path, name: str) -> Path:
    """Return `base/agents/<name>.md`; a name that already ends in `.md` is taken as it is."""
    return base / "agents" / (name if name.endswith(".md") else f"{name}.md")


def construct_context_path(base: Path, name: str) -> Path:
    """Return `base/<name>`, `base` itself for an empty name. Leading slashes do not make it absolute."""
    relative = name.lstrip("/")
    return base / relative if relative else base
