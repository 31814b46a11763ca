"""Which bundle brought which item, kept while bundles are composed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amplifier_core.mount_plan import MODULE_SECTIONS, MountPlan
from amplifier_foundation.dicts.merge import module_identity

if TYPE_CHECKING:
    from .model import Bundle

_CATEGORIES = frozenset(
    {*MODULE_SECTIONS.values(), "agent", "context", "session.orchestrator", "session.context", "spawn", "instruction"}
)


@dataclass(frozen=True)
class Origin:
    """A bundle that has an item, and the bundle through which it got it (`None`: it declares the item itself)."""

    bundle: str
    via_behavior: str | None


def keys_of(bundle: Bundle, context: dict[str, Any]) -> Iterator[str]:
    """Yield `<category>:<key>` of every item of a bundle; `context` is its context with prefixed keys."""
    for section, entries in bundle.module_lists().items():
        for entry in entries:
            if isinstance(entry, dict) and (identity := module_identity(entry)):
                yield f"{MODULE_SECTIONS[section]}:{identity}"
    for name in bundle.agents:
        yield f"agent:{name}"
    for name in (*context, *bundle._pending_context):
        yield f"context:{name}"
    yield from session_keys_of(bundle.session)
    for name in bundle.spawn:
        yield f"spawn:{name}"
    if bundle.instruction:
        yield "instruction:"


def session_keys_of(session: dict[str, Any]) -> Iterator[str]:
    """Yield the keys of orchestrator and context manager; a later bundle may take these away again."""
    for slot in MountPlan({"session": session}).member_slots():
        if slot.module_id and not slot.is_by_name:
            yield f"{slot.place}:{slot.module_id}"


class OriginLedger:
    """The origins of a bundle under composition, and which items it already has."""

    def __init__(self, base: Bundle, context: dict[str, Any]) -> None:
        self.origins = {key: list(claims) for key, claims in base.origins.items()}
        self._present = set(keys_of(base, context))
        for key in keys_of(base, context):
            if key not in self.origins:
                self._claim(key, Origin(base.namespace, None))

    def add(self, other: Bundle, context: dict[str, Any], session: dict[str, Any]) -> None:
        """Record the items that `other` brings to a bundle whose session section was `session` until now."""
        present_session = set(session_keys_of(session))
        keys = dict.fromkeys(keys_of(other, context))
        new = {key for key in keys if key not in (present_session if key.startswith("session.") else self._present)}
        for key in keys:
            if key in new:
                self._claim(key, Origin(other.namespace, None))
        for key, claims in other.origins.items():
            if key in new or key.partition(":")[0] not in _CATEGORIES:
                for claim in claims:
                    if claim.bundle != other.namespace:
                        self._claim(key, Origin(claim.bundle, other.namespace or None))
        self._present |= keys.keys()

    def _claim(self, key: str, origin: Origin) -> None:
        if origin.bundle and origin not in (claims := self.origins.setdefault(key, [])):
            claims.append(origin)


def tag_container(bundle: Bundle, container: str) -> None:
    """Add the bundle that included them to every item of an included bundle; what nameless ones brought is its own."""
    if not container:
        return
    for key in keys_of(bundle, bundle.context):
        if key not in bundle.origins:
            bundle.origins[key] = [Origin(container, None)]
    for claims in bundle.origins.values():
        if any(claim.bundle == container for claim in claims):
            continue
        if any(claim.via_behavior is None for claim in claims):
            claims.append(Origin(container, claims[-1].bundle))
