"""What a dashboard shows of one part of a session."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from amplifier_foundation.bundle import Origin
from amplifier_foundation.registry.state import BundleState

Category = Literal["context", "tools", "hooks", "providers", "agents", "behaviors"]


@dataclass(frozen=True)
class IncludeStep:
    """One bundle on the way from what was asked for to what brought an item. Unknown facts are empty."""

    bundle: str
    version: str
    uri: str
    is_root: bool = False


@dataclass(frozen=True)
class ItemRecord:
    """One item of a session. `config_summary` is redacted; `runtime_injection` says that no bundle declares the item.

    `include_paths` has every way on which the item came in, each beginning with the bundle that was asked for.
    """

    category: Category
    name: str
    enabled: bool
    module_id: str | None = None
    source_uri: str | None = None
    config_summary: dict[str, Any] = field(default_factory=dict)
    origins: list[Origin] = field(default_factory=list)
    include_paths: list[list[IncludeStep]] = field(default_factory=list)
    runtime_injection: bool = False
    explicitly_requested: bool = False


# The ways on which a bundle came in: from `included_by` of a registry's states, else from an item's origins.


def walk_include_chain(name: str, states: Mapping[str, BundleState]) -> list[IncludeStep]:
    """Return the first way from a bundle that nothing includes down to `name`; empty when `name` is not known."""
    return next(_chains_to(name, states, ()), [])


def walk_include_chains(
    name: str, states: Mapping[str, BundleState], max_paths: int | None = None
) -> list[list[IncludeStep]]:
    """Return every way from a bundle that nothing includes down to `name`, or the first `max_paths` of them."""
    return list(islice(_chains_to(name, states, ()), max_paths))


def chain_of_origins(claims: Sequence[Origin]) -> list[IncludeStep]:
    """Return the way that an item's origins tell, which know names only."""
    return [IncludeStep(claim.bundle, "", "") for claim in reversed(claims)]


def _chains_to(name: str, states: Mapping[str, BundleState], below: tuple[str, ...]) -> Iterator[list[IncludeStep]]:
    state = states.get(name)
    if state is None or name in below:  # bundles may include each other
        return
    step = IncludeStep(name, state.version or "", state.uri, state.is_root)
    includers = [other for other in state.included_by or () if other in states and other not in (*below, name)]
    if not includers:
        yield [step]
    for other in includers:
        for chain in _chains_to(other, states, (*below, name)):
            yield [*chain, step]
