"""The ways on which a bundle came in: from `included_by` of a registry's states, else from an item's origins."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from amplifier_foundation.bundle import Origin
from amplifier_foundation.registry.state import BundleState

from .records import IncludeStep


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
