"""Looking at a session: every item of it, where it comes from, and whether it is on."""

from collections.abc import Iterator, Mapping
from typing import Any

from amplifier_core.utils import redact_secrets
from amplifier_foundation.bundle import Bundle, Origin
from amplifier_foundation.registry.state import BundleState

from .include_chains import chain_of_origins, walk_include_chains
from .records import Category, IncludeStep, ItemRecord
from .switches import SessionSwitches

_ORIGIN_WORDS = {"tools": "tool", "providers": "provider", "hooks": "hook", "agents": "agent", "context": "context"}


class SessionInspector:
    """Answers what a session consists of; `states` are what a registry knows of the bundles."""

    def __init__(self, switches: SessionSwitches, bundle: Bundle, states: Mapping[str, BundleState]) -> None:
        self._switches = switches
        self._bundle = bundle
        self._states = states

    def list_items(self, category: Category) -> list[ItemRecord]:
        """Return what is on, then what is off."""
        stash = self._switches.stashes[category]
        live = {name: item for name, item in self._switches.live(category).items() if name not in stash}
        found = [(name, item, True) for name, item in live.items()] + [(name, stash[name], False) for name in stash]
        return [self._record(category, name, item, enabled) for name, item, enabled in found]

    def list_behaviors(self) -> list[ItemRecord]:
        """Return the bundles that brought something into this one."""
        off = self._switches.behaviors_off
        return [
            ItemRecord(
                "behaviors",
                name,
                name not in off,
                source_uri=state.uri if (state := self._states.get(name)) else None,
                include_paths=walk_include_chains(name, self._states),
                explicitly_requested=bool(state and state.explicitly_requested),
            )
            for name in self.behaviors()
        ]

    def behaviors(self) -> list[str]:
        claims = (claim for claims in self._bundle.origins.values() for claim in claims)
        return list(dict.fromkeys(claim.bundle for claim in claims))

    def items_of_behavior(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield category and key of what a bundle, or what it includes, brought.

        Raises:
            ValueError: no bundle of that name brought anything.
        """
        if name not in self.behaviors():
            raise ValueError(f"unknown behavior {name!r} (known: {', '.join(self.behaviors()) or 'none'})")
        words = {word: category for category, word in _ORIGIN_WORDS.items()}
        for key, claims in self._bundle.origins.items():
            word, _, item = key.partition(":")
            if word in words and any(claim.bundle == name for claim in claims):
                yield words[word], item

    def _record(self, category: Category, name: str, item: Any, enabled: bool) -> ItemRecord:
        entry = self._entry(category, name, item)
        keys = [entry.get("id"), entry.get("module"), name]
        word = _ORIGIN_WORDS[category]
        origins = next((found for key in keys if (found := self._bundle.origins.get(f"{word}:{key}"))), [])
        config = entry.get("config")
        return ItemRecord(
            category,
            name,
            enabled,
            module_id=entry.get("module"),
            source_uri=str(item) if category == "context" else entry.get("source"),
            config_summary=redact_secrets(config) if isinstance(config, dict) else {},
            origins=list(origins),
            include_paths=self._include_paths(origins),
            runtime_injection=not origins and not self._is_declared(category, name, entry),
            explicitly_requested=any(
                state.explicitly_requested for claim in origins if (state := self._states.get(claim.bundle))
            ),
        )

    def _entry(self, category: Category, name: str, item: Any) -> dict[str, Any]:
        """Return the plan's entry for what is mounted under a name."""
        if category not in ("tools", "providers", "hooks"):
            return {}
        module_id = self._switches.module_of(category, name, item)
        entries = [entry for entry in self._switches.entries(category) if entry.get("module") == module_id]
        own = [entry for entry in entries if name in (entry.get("id"), entry.get("instance_id"))]
        return (own or entries or [{}])[0] if module_id else {}

    def _is_declared(self, category: Category, name: str, entry: Mapping[str, Any]) -> bool:
        if category == "context":
            return name in self._bundle.context or name in self._switches.stashes["context"]
        return name in self._bundle.agents if category == "agents" else bool(entry)

    def _include_paths(self, origins: list[Origin]) -> list[list[IncludeStep]]:
        declaring = [claim.bundle for claim in origins if claim.via_behavior is None]
        chains = [chain for name in declaring for chain in walk_include_chains(name, self._states)]
        return chains or ([chain_of_origins(origins)] if origins else [])
