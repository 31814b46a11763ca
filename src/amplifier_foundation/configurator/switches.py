"""The switches of a running session: what is off is kept aside until it is switched on again."""

import logging
from collections.abc import Iterator
from typing import Any

from amplifier_core.mount_plan import MountPlan
from amplifier_core.packages import package_name
from amplifier_foundation.dicts import get_nested, set_nested
from amplifier_foundation.prepared import PreparedBundle

logger = logging.getLogger(__name__)

CATEGORIES = ("context", "tools", "hooks", "providers", "agents")


class SessionSwitches:
    """Changes a session in place: its tools and providers, its agents, and the context files of its bundle.

    Context files belong to the prepared bundle, so that its other sessions are without them as well.
    """

    def __init__(self, session: Any, prepared: PreparedBundle) -> None:
        self._coordinator = session.coordinator
        self._bundle = prepared.bundle
        self.stashes: dict[str, dict[str, Any]] = {category: {} for category in CATEGORIES}
        """What is off, by category and name."""
        self.behaviors_off: set[str] = set()
        self.config_overrides: dict[str, Any] = {}

    def live(self, category: str) -> dict[str, Any]:
        """Return what is on, by name."""
        if category == "context":
            return self._bundle.context
        if category == "agents":
            agents = self._coordinator.config.get("agents")
            return agents if isinstance(agents, dict) else {}
        if category == "hooks":
            handlers = self._coordinator.hooks.list_handlers()
            return {name: event for event, names in handlers.items() for name in names}
        return self._coordinator.get(category) or {}

    def switch_off(self, category: str, name: str) -> None:
        """Switch a context file or an agent off.

        Raises:
            ValueError: there is none of that name.
        """
        live = self.live(category)
        if name in self.stashes[category]:
            return
        self.stashes[category][name] = self._taken(category, name, live)
        del live[name]

    def switch_on(self, category: str, name: str) -> None:
        """Switch a context file or an agent on again."""
        stash = self.stashes[category]
        if name in stash:
            self.live(category)[name] = stash.pop(name)
        elif name not in self.live(category):
            raise self._unknown(category, name)

    async def unmount(self, category: str, name: str) -> None:
        """Switch a tool or a provider off.

        Raises:
            ValueError: there is none of that name.
        """
        if name in self.stashes[category]:
            return
        self.stashes[category][name] = self._taken(category, name, self.live(category))
        await self._coordinator.unmount(category, name=name)

    async def mount(self, category: str, name: str) -> None:
        """Switch a tool or a provider on again."""
        stash = self.stashes[category]
        if name in stash:
            await self._coordinator.mount(category, stash[name], name=name)
            del stash[name]
        elif name not in self.live(category):
            raise self._unknown(category, name)

    def names_of_module(self, category: str, module_id: str) -> list[str]:
        """Return what a module mounted, on or off; modules are told apart by the package their objects come from.

        Raises:
            ValueError: nothing here comes from that module.
        """
        everything = {**self.stashes[category], **self.live(category)}
        names = [name for name, mounted in everything.items() if self.module_of(category, name, mounted) == module_id]
        if not names:
            raise ValueError(f"no {category} come from module {module_id!r}")
        return names

    def module_of(self, category: str, name: str, mounted: Any) -> str | None:
        """Return the id of the module, among those of the plan, that mounted something."""
        own = type(mounted).__module__.partition(".")[0]
        kind = category.removesuffix("s")
        for entry in self.entries(category):
            module_id = entry.get("module")
            if not isinstance(module_id, str):
                continue
            if own == package_name(module_id) or name in (module_id, module_id.removeprefix(f"{kind}-")):
                return module_id
            if name in (entry.get("id"), entry.get("instance_id")):
                return module_id
        return None

    def entries(self, category: str) -> Iterator[dict[str, Any]]:
        """Yield the plan's entries of a category."""
        entries = MountPlan(self._coordinator.config).entries()
        return (dict(entry.spec) for entry in entries if entry.section == category)

    def get(self, path: str) -> Any:
        return get_nested(self._coordinator.config, path.split("."))

    def set(self, path: str, value: Any) -> None:
        set_nested(self._coordinator.config, path.split("."), value)
        self.config_overrides[path] = value

    def snapshot(self) -> dict[str, dict[str, list[str]]]:
        """Return what is on and what is off, by category."""
        return {
            category: {"enabled": list(self.live(category)), "disabled": list(self.stashes[category])}
            for category in CATEGORIES
        }

    def _taken(self, category: str, name: str, live: dict[str, Any]) -> Any:
        if name not in live:
            raise self._unknown(category, name)
        return live[name]

    def _unknown(self, category: str, name: str) -> ValueError:
        known = ", ".join({**self.live(category), **self.stashes[category]}) or "none"
        return ValueError(f"unknown name {name!r} in {category} (known: {known})")
