"""A repository of bundles as a graph in Graphviz's language: its files in clusters, and what names what."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amplifier_core.mount_plan import MountPlan
from amplifier_core.packages import folder_name
from amplifier_foundation.exceptions import BundleError
from amplifier_foundation.paths.discovery import find_bundle_file

from .texts import (
    color_tier,
    estimate_tokens,
    extract_delegation_targets,
    extract_mentions,
    parse_frontmatter,
    resolve_local_mention,
)
from .tool_schema import estimate_module_tool_tokens

_CLUSTERS = {  # category → label, and the folders that hold it
    "bundle": ("Bundles", ("bundles",)),
    "behavior": ("Behaviors", ("behaviors",)),
    "agent": ("Agents", ("agents",)),
    "module": ("Modules", ("modules",)),
    "provider": ("Providers", ("providers",)),
    "experiment": ("Experiments", ("experiments",)),
    "context": ("Context", ("context",)),
}
_SUFFIXES = (".md", ".yaml", ".yml")


@dataclass(frozen=True)
class _Node:
    """A file of the repository, or the folder of a module."""

    path: str
    category: str
    tokens: int
    data: Mapping[str, Any] = field(default_factory=dict)
    body: str = ""


def bundle_repo_dot(repo_root: str | Path) -> str:
    """Return the graph of a repository's bundles, agents, modules and context files, always in the same order.

    Each node says how many tokens it costs, its colour how much that is for its kind. A file that cannot be read as
    what it is stands there with its size alone.
    """
    root = Path(repo_root).resolve()
    nodes = {node.path: node for category in _CLUSTERS for node in _nodes(root, category)}
    lines = ["digraph bundle_repo {", "  rankdir=LR;", '  node [shape=box, style=filled, fontname="Helvetica"];']
    for category, (label, _) in _CLUSTERS.items():
        members = [node for node in nodes.values() if node.category == category]
        if members:
            lines += [f"  subgraph cluster_{category} {{", f"    label={_quoted(label)};"]
            lines += [f"    {_drawn(node)}" for node in members]
            lines.append("  }")
    edges = sorted({edge for node in nodes.values() for edge in _edges(node, nodes, root)})
    lines += [f"  {_quoted(start)} -> {_quoted(end)} [label={_quoted(label)}];" for start, end, label in edges]
    return "\n".join((*lines, "}", ""))


def _drawn(node: _Node) -> str:
    label, colour = f"{node.path}\n~{node.tokens} tokens", color_tier(node.tokens, node.category)
    return f"{_quoted(node.path)} [label={_quoted(label)}, fillcolor={_quoted(colour)}];"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a string of JSON is one of Graphviz


def _nodes(root: Path, category: str) -> Iterator[_Node]:
    """Yield what the repository has of a category, in order of the paths."""
    if category == "bundle" and (file := find_bundle_file(root)) is not None:
        yield _node(root, file, category)
    for folder in (root / name for name in _CLUSTERS[category][1]):
        if category == "module":
            for place in sorted(folder.glob("*/")):
                if any(place.glob("*.py")) or any(place.glob("*/__init__.py")):
                    yield _Node(_below(root, place), category, estimate_module_tool_tokens(place))
            continue
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.suffix in _SUFFIXES and not _is_hidden(root, file):
                yield _node(root, file, category)


def _node(root: Path, file: Path, category: str) -> _Node:
    try:
        size = file.stat().st_size
        data, body = parse_frontmatter(file)
    except (OSError, BundleError):
        return _Node(_below(root, file), category, estimate_tokens(" " * size))
    # Of a bundle a model sees the body, and of an agent the description too; the rest is configuration.
    described = data.get("meta", {}).get("description", "") if isinstance(data.get("meta"), Mapping) else ""
    seen = body if file.suffix == ".md" else ""
    return _Node(_below(root, file), category, estimate_tokens(f"{described}{seen}"), data, body)


def _below(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def _is_hidden(root: Path, file: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(root).parts)


def _edges(node: _Node, nodes: Mapping[str, _Node], root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield what a file names within the repository: start, end and how."""
    named = [("includes", text) for text in _texts(node.data.get("includes"), "bundle", "behavior")]
    named += [("context", text) for text in _texts(_section(node.data, "context").get("include"))]
    agents = _texts(_section(node.data, "agents").get("include"))
    named += [("agent", text) for text in (*agents, *extract_delegation_targets(node.body))]
    named += [("mentions", text) for text in extract_mentions(node.body)]
    for label, text in named:
        if (end := _file_of(text, label, node, root)) is not None and end in nodes and end != node.path:
            yield node.path, end, label
    for entry in MountPlan(node.data).entries():
        for folder in (f"modules/{entry.module_id}", f"modules/{folder_name(entry.module_id)}"):
            if folder in nodes:
                yield node.path, folder, "module"


def _file_of(text: str, label: str, node: _Node, root: Path) -> str | None:
    """Return the path within the repository that a reference means, if it means one there."""
    local = text.removeprefix("@").partition("#subdirectory=")
    path = local[2] or local[0].rpartition(":")[2]
    beside = (root / node.path).parent
    places = [path]
    if label == "agent":
        places = [f"agents/{path}", path]
    elif path.startswith("."):
        places = [str((beside / path).resolve().relative_to(root))] if _is_below(beside / path, root) else []
    for place in places:
        if (found := resolve_local_mention(f"@x:{place}", root)) is not None:
            return _below(root, found)
    return None


def _is_below(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root)


def _texts(value: Any, *keys: str) -> Iterator[str]:
    """Yield the references of a list, whose items are texts or mappings with one of the keys."""
    for item in value if isinstance(value, list) else ():
        found = next((item[key] for key in keys if key in item), None) if isinstance(item, Mapping) else item
        if isinstance(found, str):
            yield found


def _section(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = data.get(name)
    return section if isinstance(section, Mapping) else {}
