"""How bundles are laid over each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_foundation.dicts.merge import deep_merge, merge_module_lists

from .origins import OriginLedger
from .policies import with_policy

if TYPE_CHECKING:
    from .model import Bundle


def compose(base: Bundle, others: Sequence[Bundle]) -> Bundle:
    """Return a new bundle: `base` with each of `others` laid over it in turn."""
    context = _prefixed_context(base)
    ledger = OriginLedger(base, context)
    result = replace(
        base,
        includes=list(base.includes),
        session=dict(base.session),
        providers=list(base.providers),
        tools=list(base.tools),
        hooks=list(base.hooks),
        spawn=dict(base.spawn),
        agents=dict(base.agents),
        context=dict(context),
        source_base_paths=dict(base.source_base_paths),
        _pending_context=dict(base._pending_context),
        origins=ledger.origins,
    )
    if base.namespace and base.base_path:
        result.source_base_paths.setdefault(base.namespace, base.base_path)
    layers = [*base._get_layers(context)]
    for other in others:
        other_context = _prefixed_context(other)
        layers += other._get_layers(other_context)
        ledger.add(other, other_context, result.session)
        _lay_over(result, other, other_context)
    if others:
        listed = [other.module_lists() for other in others]
        for section, entries in base.module_lists().items():  # one merge for all: overlays apply entry by entry
            overlays = chain.from_iterable(lists[section] for lists in listed)
            setattr(result, section, merge_module_lists(entries, overlays))
    result._layers = tuple(layers)
    return result


def _lay_over(result: Bundle, other: Bundle, other_context: dict[str, Path]) -> None:
    if other.namespace:
        result.name, result.from_meta = other.name, False
    result.version = other.version or result.version
    result.description = other.description or result.description
    if other.instruction:
        result.instruction, result._agent_instruction = other.instruction, other._agent_instruction
    result.base_path = other.base_path or result.base_path
    result.session = with_policy(deep_merge(result.session, other.session), result.session, other.session)
    result.spawn = deep_merge(result.spawn, other.spawn)
    result.agents.update(other.agents)
    result.context.update(other_context)
    result._pending_context.update(other._pending_context)
    _register_namespaces(result.source_base_paths, other)


def _register_namespaces(known: dict[str, Path], other: Bundle) -> None:
    """Add the namespaces that are not known yet: the first registration of a name wins."""
    own = other.namespace
    for namespace, path in other.source_base_paths.items():
        if namespace != own:
            known.setdefault(namespace, path)
    path_of_own = other.source_base_paths.get(own) or other.base_path
    if own and path_of_own:
        known.setdefault(own, path_of_own)


def _prefixed_context(bundle: Bundle) -> dict[str, Path]:
    """Return a bundle's context files under keys that say whose they are: `<name>:<key>`."""
    if not bundle.namespace:
        return dict(bundle.context)
    return {key if ":" in key else f"{bundle.namespace}:{key}": path for key, path in bundle.context.items()}
