"""YAML as we read it: plain data only, by libyaml where it is there, and never more than a file should hold.

A YAML text can be small and still expand to gigabytes (aliases of aliases) or nest so deeply that the parser overruns
its stack. Texts that could do so are walked as a flat stream of events first, which needs neither; ordinary texts skip
that walk.
"""

import asyncio
import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from .files import read_with_retry, write_with_retry

MAX_CHARACTERS = 8 * 1024 * 1024
MAX_DEPTH = 100
MAX_NODES = 200_000

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TEXT, _MAPPING, _SEQUENCE, _TIMESTAMP = (f"tag:yaml.org,2002:{kind}" for kind in ("str", "map", "seq", "timestamp"))
_UNUSUAL = ("&", "!", "<<", "=:")  # anchors, tags, merges and default values are left to the loader
_FAR_IN = re.compile(r"\n[ \t]{40}")
_TWO_IN_A_LINE = re.compile(r"[-?:][ \t]+[-?:][ \t]")  # ordinary texts have none, and this is quick to see
_MANY_IN_A_LINE = re.compile(r"(?:[-?:][ \t]+){20}")


class _Loader(_Base):  # type: ignore[misc] # one of two classes of the library
    """Keeps what looks like a date and is none, such as `2026-02-30`, as text: one slip does not spoil a file."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except ValueError as error:  # a value that its tag does not fit, `!!int x`
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from error

    def construct_yaml_timestamp(self, node: Any) -> Any:
        try:
            return super().construct_yaml_timestamp(node)
        except ValueError:
            return self.construct_scalar(node)


_Loader.add_constructor(_TIMESTAMP, _Loader.construct_yaml_timestamp)


class YAMLLimitError(yaml.YAMLError):
    """The text is valid as far as it was read, but larger, deeper or more self-multiplying than any file of ours."""


def yaml_problem(error: Exception, *, first_line: int = 1) -> str:
    """Return what is wrong with a text that is not YAML, in one line; `first_line` is where it begins in its file."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + first_line}, column {mark.column + 1}: {problem}" if mark else str(problem)


def load_yaml(text: str, *, max_characters: int = MAX_CHARACTERS, max_depth: int = MAX_DEPTH) -> Any:
    """Return the plain data of a YAML document, `None` for an empty one.

    Raises:
        yaml.YAMLError: not YAML, or beyond the limits of size, depth and expansion.
    """
    _check_limits(text, max_characters, max_depth)
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if not any(sign in text for sign in _UNUSUAL):
            with contextlib.suppress(TypeError):  # a key that cannot be one, which the loader reports with its line
                return _build(node, loader)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def load_yaml_nodes(text: str) -> yaml.Node | None:
    """Return the same document as nodes, which know their lines (`node.start_mark.line`, counted from 0)."""
    _check_limits(text, MAX_CHARACTERS, MAX_DEPTH)
    node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    return node


def dump_yaml(data: Any) -> str:
    """Return `data` as block-style YAML, keys in their order, letters of any language as they are."""
    text: str = yaml.dump(data, Dumper=_Dumper, default_flow_style=False, sort_keys=False, allow_unicode=True)
    return text


async def read_yaml(path: Path) -> dict[str, Any] | None:
    """Return the mapping in a YAML file: `None` when there is no file, `{}` when it is empty."""
    try:
        text = await read_with_retry(path)
    except FileNotFoundError:
        return None
    data = await asyncio.to_thread(load_yaml, text.lstrip("\ufeff"))
    return {} if data is None else data


async def write_yaml(path: Path, data: Any) -> None:
    """Write a mapping, or other plain data, as block-style YAML; missing folders are made."""
    plain = dict(data) if isinstance(data, Mapping) else data
    await write_with_retry(path, await asyncio.to_thread(dump_yaml, plain))


def _build(node: Any, loader: Any) -> Any:
    """Return the data of a node as the loader would, in half the time; for documents without unusual signs."""
    tag = node.tag
    if tag == _TEXT:
        return node.value
    if tag == _MAPPING:
        return {_build(key, loader): _build(value, loader) for key, value in node.value}
    if tag == _SEQUENCE:
        return [_build(item, loader) for item in node.value]
    return loader.construct_object(node, deep=True)


def _check_limits(text: str, max_characters: int, max_depth: int) -> None:
    if len(text) > max_characters:
        raise YAMLLimitError(f"YAML of {len(text):,} characters; at most {max_characters:,} are read")
    brackets = text.count("[") + text.count("{")
    if brackets >= max_depth or ("*" in text and "&" in text) or _may_nest_deeply(text):
        _walk_events(text, max_depth)


def _may_nest_deeply(text: str) -> bool:
    if _FAR_IN.search(text):
        return True
    return _TWO_IN_A_LINE.search(text) is not None and _MANY_IN_A_LINE.search(text) is not None


def _walk_events(text: str, max_depth: int) -> None:
    """Add up, without building anything, what the document would expand to and how deep it goes."""
    sizes: dict[str | None, int] = {}  # of every anchor that is complete
    open_anchors: list[str | None] = []
    counts = [0]  # of values, for the document and each collection that is open
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.CollectionStartEvent):
            open_anchors.append(event.anchor)
            counts.append(0)
            if len(open_anchors) > max_depth:
                raise YAMLLimitError(f"line {line}: nested more than {max_depth} levels deep")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            size, anchor = counts.pop() + 1, open_anchors.pop()
        elif isinstance(event, yaml.ScalarEvent):
            size, anchor = 1, event.anchor
        elif isinstance(event, yaml.AliasEvent):
            size, anchor = sizes.get(event.anchor, 0), None
            if event.anchor in open_anchors:
                raise YAMLLimitError(f"line {line}: *{event.anchor} contains itself")
        else:
            continue
        if anchor is not None:
            sizes[anchor] = size
        counts[-1] += size
        if counts[-1] > MAX_NODES:
            raise YAMLLimitError(f"line {line}: expands to more than {MAX_NODES:,} values")
