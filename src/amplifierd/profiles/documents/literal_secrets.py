"""Secrets that stand in a profile or a plan itself: found, and replaced by references to the key store of the home."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import yaml

from amplifier_core.utils import SENSITIVE_KEYS
from amplifier_foundation.io import split_anchored_frontmatter
from amplifier_kit.redaction import mask_text
from amplifier_kit.redaction.secret_patterns import names_secret
from amplifierd.identifiers import is_kept_secret

from .document import ProfileDocument

KeepSecret = Callable[[str], str]
"""Puts a secret into the key store, and returns the name that it is found by there."""

_SHORTEST = 8  # shorter ones, and those without a digit, stand where a server wants any key at all
_REFERENCE = re.compile(r"\$\{(\w+)\}")
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")

_Change = Callable[[str, str, str], str]
"""Takes key path, key and text of a value in a configuration, and returns what takes the text's place."""


def find_literal_secrets(value: Any) -> list[str]:
    """Return the key paths of texts in configurations that are secrets themselves, or were before they were kept."""
    found: list[str] = []

    def note(place: str, key: str, text: str) -> str:
        if _is_secret(key, text) or _is_kept(text):
            found.append(place)
        return text

    _map_configurations(value, note)
    return found


def conceal(value: Any, keep: KeepSecret) -> Any:
    """Return a plan, or sections of a profile, with references in place of the secrets in its configurations.

    The text of an agent loses those that its configuration has, too.
    """
    references: dict[str, str] = {}

    def change(place: str, key: str, text: str) -> str:
        if not _is_secret(key, text):
            return text
        if text not in references:
            references[text] = f"${{{keep(text)}}}"
        return references[text]

    changed = _map_configurations(value, change)
    return _conceal_agents(changed, references) if references else value


def conceal_document(document: ProfileDocument, keep: KeepSecret) -> ProfileDocument:
    """Return a profile with references in place of the secrets in its configurations, in its text as well."""
    references: dict[str, str] = {}

    def keep_and_note(secret: str) -> str:
        name = keep(secret)
        references[secret] = f"${{{name}}}"
        return name

    sections = conceal(document.sections, keep_and_note)
    if not references:
        return document
    return replace(document, sections=sections, text=_conceal_text(document.text, references))


def _is_secret(key: str, text: str) -> bool:
    return "${" not in text and (_is_named(key, text) or mask_text(text, ("secrets",)) != text)


def _is_named(key: str, text: str) -> bool:
    names_one = key.lower() in SENSITIVE_KEYS or names_secret(key)
    return names_one and len(text) >= _SHORTEST and any(map(str.isdigit, text))


def _is_kept(text: str) -> bool:
    match = _REFERENCE.fullmatch(text)
    return match is not None and is_kept_secret(match[1])


def _map_configurations(value: Any, change: _Change, place: str = "", key: str = "", *, inside: bool = False) -> Any:
    """Return plain data in which the texts below every key `config` are what `change` makes of them."""
    if isinstance(value, Mapping):
        pairs = ((name, inner, f"{place}.{name}" if place else str(name)) for name, inner in value.items())
        return {
            name: _map_configurations(inner, change, below, str(name), inside=inside or name == "config")
            for name, inner, below in pairs
        }
    if isinstance(value, list):
        items = enumerate(value)
        return [_map_configurations(item, change, f"{place}[{index}]", inside=inside) for index, item in items]
    return change(place, key, value) if inside and isinstance(value, str) else value


def _conceal_agents(value: Any, references: Mapping[str, str]) -> Any:
    agents = value.get("agents") if isinstance(value, Mapping) else None
    if not isinstance(agents, Mapping):
        return value
    return {**value, "agents": {name: _conceal_agent(agent, references) for name, agent in agents.items()}}


def _conceal_agent(agent: Any, references: Mapping[str, str]) -> Any:
    text = agent.get("content") if isinstance(agent, Mapping) else None
    if not isinstance(text, str):
        return agent
    for secret, reference in references.items():
        text = text.replace(secret, reference)
    return {**agent, "content": text}


def _conceal_text(text: str, references: Mapping[str, str]) -> str:
    """Return a profile's text with references in place of values; every line stays on the line where it is."""
    front = split_anchored_frontmatter(text).front or ""
    begin = text.index(front)
    for node in sorted(_scalars(front), key=lambda node: -node.start_mark.index):
        reference = references.get(node.value)
        if reference is not None:
            start, end = begin + node.start_mark.index, begin + node.end_mark.index
            written = text[start:end]
            properties = _PROPERTIES.match(written)
            assert properties is not None  # none at all is a match
            lines = "\n" * written.count("\n")
            text = f'{text[:start]}{properties[0]}"{reference}"{lines}{text[end:]}'
    return text


def _scalars(front: str) -> Iterator[yaml.ScalarNode]:
    """Yield every single value of a YAML text, once each, with its place in the text."""
    seen: set[int] = set()
    waiting: list[Any] = [yaml.compose(front, Loader=yaml.SafeLoader)]
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            yield node
        elif isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]
        else:
            waiting += node.value
