"""The face of it all: one object for a dashboard or a command."""

import io
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from amplifier_core.utils import redact_secrets
from amplifier_foundation.bundle import Bundle, Origin
from amplifier_foundation.exceptions import BundleLoadError
from amplifier_foundation.io import write_with_backup
from amplifier_foundation.paths.home import get_amplifier_home
from amplifier_foundation.prepared import PreparedBundle
from amplifier_foundation.registry import BundleRegistry
from amplifier_foundation.registry.state import BundleState
from amplifier_foundation.session.capabilities import get_working_dir

from .records import Category, IncludeStep, ItemRecord, chain_of_origins, walk_include_chains
from .switches import CATEGORIES, SessionSwitches

logger = logging.getLogger(__name__)

_SAVED = ("behaviors", *CATEGORIES)
_BUNDLE_SUFFIX = re.compile(r"\.(?:md|ya?ml)$")


class SessionConfigurator:
    """Shows what a running session consists of and switches parts of it off and on. Unknown names are `ValueError`s.

    A `registry` lets records say through which bundles an item came in, with versions and sources.
    """

    def __init__(
        self, session: Any, prepared_bundle: PreparedBundle, *, registry: BundleRegistry | None = None
    ) -> None:
        self._coordinator = session.coordinator
        self._switches = SessionSwitches(session, prepared_bundle)
        states = registry.get_state() if registry is not None else {}
        self._inspector = SessionInspector(self._switches, prepared_bundle.bundle, states)
        self.take_snapshot()

    def context_disable(self, name: str) -> None:
        self._switches.switch_off("context", name)

    def context_enable(self, name: str) -> None:
        self._switches.switch_on("context", name)

    def agent_disable(self, name: str) -> None:
        self._switches.switch_off("agents", name)

    def agent_enable(self, name: str) -> None:
        self._switches.switch_on("agents", name)

    async def tool_disable(self, name: str) -> None:
        await self._switches.unmount("tools", name)

    async def tool_enable(self, name: str) -> None:
        await self._switches.mount("tools", name)

    async def tool_disable_module(self, module_id: str) -> list[str]:
        """Switch off every tool of a module and return their names."""
        return await self._each("tools", module_id, self._switches.unmount)

    async def tool_enable_module(self, module_id: str) -> list[str]:
        return await self._each("tools", module_id, self._switches.mount)

    async def provider_disable(self, name: str) -> None:
        await self._switches.unmount("providers", name)

    async def provider_enable(self, name: str) -> None:
        await self._switches.mount("providers", name)

    def hook_disable(self, name: str) -> None:
        """Say that this cannot be done: handlers are registered with the session and belong to their module."""
        logger.warning("hook %r stays on: hooks cannot be switched in a running session", name)

    def hook_enable(self, name: str) -> None:
        logger.warning("hook %r stays as it is: hooks cannot be switched in a running session", name)

    async def behavior_disable(self, name: str) -> dict[str, list[str]]:
        """Switch off what a bundle brought: `{"disabled": ["<category>:<name>"], "warnings": […]}`.

        It goes by its name, by that of its file, or as it is included: `todo-behavior`, `todo`, `team:behaviors/todo`.
        """
        name = self._inspector.behavior_named(name)
        changed, warnings = await self._switch_behavior(name, self._off)
        self._switches.behaviors_off.add(name)
        return {"disabled": changed, "warnings": warnings}

    async def behavior_enable(self, name: str) -> dict[str, list[str]]:
        """Switch on again what a bundle brought: `{"enabled": ["<category>:<name>"], "warnings": […]}`."""
        name = self._inspector.behavior_named(name)
        changed, warnings = await self._switch_behavior(name, self._on)
        self._switches.behaviors_off.discard(name)
        return {"enabled": changed, "warnings": warnings}

    def config_get(self, path: str) -> Any:
        """Return a value of the session's plan by dotted keys, `None` when there is none."""
        return self._switches.get(path)

    def config_set(self, path: str, value: Any) -> None:
        self._switches.set(path, value)

    def snapshot(self) -> dict[str, dict[str, list[str]]]:
        """Return `{category: {"enabled": […], "disabled": […]}}`."""
        return self._switches.snapshot()

    def take_snapshot(self) -> None:
        """Let `diff_from_original` count from now."""
        self._original = self.snapshot()

    def diff_from_original(self) -> list[dict[str, str]]:
        """Return what was switched since the last snapshot: `{category, name, action}`."""
        return [
            {"category": category, "name": name, "action": action}
            for category, now in self.snapshot().items()
            for action in ("disabled", "enabled")
            for name in now[action]
            if name not in self._original[category][action]
        ]

    def save(self, scope: Literal["global", "project"] = "global") -> Path:
        """Write what is off and what was changed to the settings file of the home or of the project.

        Raises:
            BundleLoadError: that file is there and is not a YAML mapping.
            ValueError: the scope is another one.
        """
        if scope not in ("global", "project"):
            raise ValueError(f"unknown scope {scope!r}: use global or project")
        home = get_amplifier_home() if scope == "global" else get_working_dir(self._coordinator) / ".amplifier"
        write_settings(home / "settings.yaml", self._settings())
        return home / "settings.yaml"

    async def apply_saved_settings(self, settings: Mapping[str, Any]) -> list[str]:
        """Switch off and set what `save` wrote; returns a warning for every name that is not there any more."""
        saved = settings.get(KEY, settings)
        disabled = saved.get("disabled") or {}
        warnings: list[str] = []
        for category in _SAVED:
            for name in disabled.get(category) or ():
                try:
                    if category == "behaviors":
                        warnings += (await self.behavior_disable(name))["warnings"]
                    else:
                        await self._off(category, name)
                except ValueError as error:
                    warnings.append(f"{category}: {error}")
        for path, value in (saved.get("config_overrides") or {}).items():
            self.config_set(path, value)
        return warnings

    def context_list(self) -> list[ItemRecord]:
        return self._inspector.list_items("context")

    def tools_list(self) -> list[ItemRecord]:
        return self._inspector.list_items("tools")

    def hooks_list(self) -> list[ItemRecord]:
        return self._inspector.list_items("hooks")

    def providers_list(self) -> list[ItemRecord]:
        return self._inspector.list_items("providers")

    def agents_list(self) -> list[ItemRecord]:
        return self._inspector.list_items("agents")

    def behaviors_list(self) -> list[ItemRecord]:
        return self._inspector.list_behaviors()

    async def _each(self, category: str, module_id: str, switch: Callable[[str, str], Awaitable[None]]) -> list[str]:
        names = self._switches.names_of_module(category, module_id)
        for name in names:
            await switch(category, name)
        return names

    async def _switch_behavior(
        self, behavior: str, switch: Callable[[str, str], Awaitable[None]]
    ) -> tuple[list[str], list[str]]:
        changed: list[str] = []
        warnings: list[str] = []
        for category, key in list(self._inspector.items_of_behavior(behavior)):
            if category == "hooks":
                warnings.append(f"hook {key!r} stays as it is: hooks cannot be switched in a running session")
                continue
            try:
                names = self._names_of(category, key)
                for name in names:
                    await switch(category, name)
                    changed.append(f"{category}:{name}")
            except ValueError as error:
                warnings.append(str(error))
        return changed, warnings

    def _names_of(self, category: str, key: str) -> list[str]:
        """Return the names an origin's key means: modules mount under names of their own."""
        if category in ("context", "agents"):
            return [key]
        known = {**self._switches.live(category), **self._switches.stashes[category]}
        return [key] if key in known else self._switches.names_of_module(category, key)

    async def _off(self, category: str, name: str) -> None:
        if category == "hooks":
            self.hook_disable(name)
        elif category in ("tools", "providers"):
            await self._switches.unmount(category, name)
        else:
            self._switches.switch_off(category, name)

    async def _on(self, category: str, name: str) -> None:
        if category in ("tools", "providers"):
            await self._switches.mount(category, name)
        else:
            self._switches.switch_on(category, name)

    def _settings(self) -> dict[str, Any]:
        disabled = {category: sorted(self._switches.stashes[category]) for category in CATEGORIES}
        return {
            "disabled": {"behaviors": sorted(self._switches.behaviors_off), **disabled},
            "config_overrides": dict(self._switches.config_overrides),
        }


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

    def behavior_named(self, name: str) -> str:
        """Return the bundle that is meant: by its name, else by its file or a reference that ends in it.

        Raises:
            ValueError: no bundle of that name brought anything, or several files are called so.
        """
        known = self.behaviors()
        if name in known:
            return name
        file = _BUNDLE_SUFFIX.sub("", name.rpartition(":")[2].rpartition("/")[2])
        meant = {layer.name for layer in self._bundle._layers if layer.file is not None and layer.file.stem == file}
        if len(meant & set(known)) == 1:
            return next(iter(meant & set(known)))
        raise ValueError(f"unknown behavior {name!r} (known: {', '.join(known) or 'none'})")

    def items_of_behavior(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield category and key of what a bundle, or what it includes, brought."""
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


KEY = "configurator"


def write_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Put the settings into a file; the rest of it, comments included, stays as it is.

    Raises:
        BundleLoadError: the file is there and is not a YAML mapping.
        OSError: it cannot be written.
    """
    from ruamel.yaml import YAML  # keeps comments; needed nowhere else here
    from ruamel.yaml.error import YAMLError

    yaml = YAML()
    try:
        document = yaml.load(path.read_text(encoding="utf-8")) if path.exists() else None
    except YAMLError as error:
        raise BundleLoadError(f"{path} is not valid YAML: {error}", hint="correct it, or move it away") from error
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise BundleLoadError(f"{path}: the root must be a mapping, it is a {type(document).__name__}")
    document[KEY] = dict(settings)
    text = io.StringIO()
    yaml.dump(document, text)
    write_with_backup(path, text.getvalue())
