"""Which file set a value, found again from the layers a composed value was made of.

Composing remembers only the layers themselves, so provenance costs nothing until it is asked for. Then each layer is
asked for the one path in question, and files are read again for the line numbers.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from amplifier_foundation.dicts.merge import Identity, Lists, module_identity
from amplifier_foundation.io.frontmatter import split_frontmatter
from amplifier_foundation.io.yaml import load_yaml_nodes

_STEP = re.compile(r"(?:^|\.)(?P<key>[^.\[\]]+)|\[(?P<entry>[^\]]+)\]")
_MISSING: Any = object()


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One file's, or one program's, part of a composed value; later layers win.

    `root` is where in the whole the file's own root belongs: `("agents", name)` for the file of an agent. `text` is
    what the file held when it was read; without it the file is read again.
    """

    name: str
    file: Path | None
    data: Mapping[str, Any]
    root: tuple[str, ...] = ()
    text: str | None = None


def explain(
    whole: Mapping[str, Any],
    layers: Sequence[Layer],
    path: str,
    *,
    owner: str,
    lists: Lists = "concat",
    identity: Identity = module_identity,
    replaced: Collection[str] = (),
) -> dict[str, Any]:
    """Say where the value at `path` of `whole` comes from: `{value, origin{<owner>, file, line}, overrode[]}`.

    `path` has dotted keys, and brackets for list entries by `identity`, texts by themselves, or for keys with dots.
    `overrode` has the earlier settings, the oldest first, each as `{value, origin, merged}`; `merged` ones are part of
    the value, by the rule that `lists` names, unless they belong to a section in `replaced`, whose entries replace each
    other as a whole. The origin of a value that no layer set has `None` for everything.

    Raises:
        KeyError: `path` leads to nothing.
    """
    steps = parse_path(path)
    value = _find(whole, steps, identity)
    if value is _MISSING:
        raise KeyError(path)
    claims = [(layer, found) for layer in layers if (found := _find(layer.data, steps, identity)) is not _MISSING]
    if not claims or not (isinstance(value, Mapping | list) or claims[-1][1] == value):
        claims.append((Layer("", None, whole), value))
    replaces_entries = len(steps) > 1 and steps[0] in replaced

    def is_merged(index: int) -> bool:
        later = claims[index + 1 :]
        if replaces_entries and any(not layer.root for layer, _ in later):
            return False
        return all(_merges(claims[index][1], new, lists) for _, new in later)

    return {
        "value": value,
        "origin": _origin(claims[-1][0], steps, owner, identity),
        "overrode": [
            {"value": old, "origin": _origin(layer, steps, owner, identity), "merged": is_merged(index)}
            for index, (layer, old) in enumerate(claims[:-1])
        ],
    }


def parse_path(path: str) -> tuple[str, ...]:
    """Return the steps of a path such as `tools[tool-bash].config.timeout`.

    Raises:
        KeyError: it is not such a path.
    """
    steps = list(_STEP.finditer(path))
    if not steps or "".join(step[0] for step in steps) != path:
        raise KeyError(path)
    return tuple(step["key"] or step["entry"] for step in steps)


def _find(data: Any, steps: Sequence[str], identity: Identity) -> Any:
    for step in steps:
        if isinstance(data, Mapping):
            data = data.get(step, _MISSING)
        elif isinstance(data, list):
            data = next((entry for entry in reversed(data) if _is_entry(entry, step, identity)), _MISSING)
        else:
            return _MISSING
    return data


def _is_entry(entry: Any, step: str, identity: Identity) -> bool:
    return identity(entry) == step if isinstance(entry, Mapping) else entry == step


def _merges(old: Any, new: Any, lists: Lists) -> bool:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return True
    return lists == "concat" and isinstance(old, list) and isinstance(new, list)


def _origin(layer: Layer, steps: tuple[str, ...], owner: str, identity: Identity) -> dict[str, Any]:
    return {
        owner: layer.name or None,
        "file": str(layer.file) if layer.file else None,
        "line": _find_line(layer, steps, identity) if layer.file else None,
    }


def find_line(
    text: str, steps: Sequence[str], *, is_markdown: bool = True, identity: Identity = module_identity
) -> int | None:
    """Return the line, counted from 1, of a key in a file's text, or of the nearest key above it that is there.

    `steps` are keys, identities of list entries, or their positions as digits. None when the text is no longer YAML.
    """
    try:
        front, body, first_line = _split(text) if is_markdown else (text, "", 1)
        if tuple(steps) == ("instruction",):
            return text.count("\n", 0, len(text) - len(body)) + 1
        root = _nodes(front) if front else None
    except yaml.YAMLError:
        return None
    marks = max((list(_marks(root, way, identity)) for way in (steps, ("meta", *steps))), key=len)
    return first_line + marks[-1] if marks else None


_split = lru_cache(maxsize=8)(split_frontmatter)


@lru_cache(maxsize=64)
def _pairs(node: yaml.MappingNode) -> dict[Any, tuple[yaml.Node, yaml.Node]]:
    """Return keys and values by the texts of the keys; of equal ones the first."""
    return {key.value: (key, value) for key, value in reversed(node.value) if isinstance(key, yaml.ScalarNode)}


@lru_cache(maxsize=64)
def _entries(node: yaml.SequenceNode, identity: Identity) -> dict[str | None, yaml.Node]:
    """Return the entries of a list by what they are known by, texts by themselves; of equal ones the last."""
    return {
        entry.value if isinstance(entry, yaml.ScalarNode) else identity(_scalars(entry)): entry for entry in node.value
    }


@lru_cache(maxsize=32)
def _nodes(front: str) -> yaml.Node | None:
    """Parse YAML; explaining a whole plan asks about the same few texts again and again."""
    return load_yaml_nodes(front)


def _find_line(layer: Layer, steps: tuple[str, ...], identity: Identity) -> int | None:
    assert layer.file is not None
    try:
        text = layer.file.read_text(encoding="utf-8-sig") if layer.text is None else layer.text
    except (OSError, ValueError):  # the file changed since; the rest of the answer still holds
        return None
    is_markdown = layer.file.suffix.lower() == ".md"
    return find_line(text, steps[len(layer.root) :], is_markdown=is_markdown, identity=identity)


def _marks(node: yaml.Node | None, steps: Sequence[str], identity: Identity) -> Iterator[int]:
    """Yield the line, counted from 0, of each step's key for as long as the nodes have it."""
    for step in steps:
        if isinstance(node, yaml.MappingNode):
            pair = _pairs(node).get(step)
            if pair is None:
                return
            key, node = pair
            yield key.start_mark.line
        elif isinstance(node, yaml.SequenceNode):
            at_position = node.value[int(step)] if step.isdecimal() and int(step) < len(node.value) else None
            node = _entries(node, identity).get(step, at_position)
            if node is None:
                return
            yield node.start_mark.line
        else:
            return


def _scalars(node: yaml.Node) -> dict[str, Any]:
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {key.value: value.value for key, value in node.value if isinstance(value, yaml.ScalarNode)}
