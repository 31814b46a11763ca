"""The hook that says what is being retired: to the person, who can act, and not to the model."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from typing import Any

from amplifier_core import HookResult
from amplifier_core.boundary import emit_quietly
from amplifier_core.mount_plan import MountPlan
from amplifier_kit.config import ModuleConfig
from amplifier_kit.injection import NOTHING
from amplifier_kit.mounting import hook_registry

MODULE_ID = "hooks-deprecation"
WARNING = "deprecation:warning"
EVENTS = ("deprecation:warning",)

_KEYS = ("bundle_name", "message", "replacement", "migration", "severity", "sunset_date", "require_evidence")


@dataclass(frozen=True, slots=True)
class Notice:
    """What is being retired; with `require_evidence` it is told only where the session's plan uses it."""

    bundle_name: str
    message: str = ""
    replacement: str = ""
    migration: str = ""
    severity: str = "warning"
    sunset_date: str = ""
    require_evidence: bool = False

    @classmethod
    def read(cls, given: Mapping[str, Any], module_id: str) -> "Notice":
        read = ModuleConfig(module_id, given)
        return cls(
            bundle_name=read.text("bundle_name", ""),
            message=read.text("message", ""),
            replacement=read.text("replacement", ""),
            migration=read.text("migration", ""),
            severity=read.choice("severity", "warning", ("warning", "info")),
            sunset_date=str(given.get("sunset_date") or ""),
            require_evidence=read.boolean("require_evidence", False),
        )

    @property
    def text(self) -> str:
        parts = [self.message or f"{self.bundle_name} is being retired."]
        if self.sunset_date:
            parts.append(f"It {'ended' if self._is_over() else 'ends'} on {self.sunset_date}.")
        if self.replacement:
            parts.append(f"Use {self.replacement} instead.")
        if self.migration:
            parts.append(self.migration)
        return " ".join(part.strip() for part in parts)

    def _is_over(self) -> bool:
        try:
            return date.fromisoformat(self.sunset_date) <= datetime.now(UTC).date()
        except ValueError:
            return False


class DeprecationHook:
    """Tells each notice once, when the session starts."""

    def __init__(self, coordinator: Any, config: dict[str, Any] | None = None) -> None:
        self.coordinator = coordinator
        read = ModuleConfig(MODULE_ID, config)
        self.enabled_events = read.strings("enabled_events", None)
        flat = {key: value for key in _KEYS if (value := read.raw(key)) is not None}
        listed = [item for item in read.items("deprecations", []) if isinstance(item, Mapping)]
        read.warn_unknown()
        given = [*([flat] if flat.get("bundle_name") else []), *listed]
        self.notices = [Notice.read(item, MODULE_ID) for item in given]
        self._due: list[Notice] | None = None

    def decide(self) -> None:
        """Keep what this session really uses, and what is told without evidence."""
        self._due = [notice for notice in self.notices if not notice.require_evidence or self._is_used(notice)]

    async def notify(self, event: str, data: dict[str, Any]) -> HookResult:
        """Tell the person."""
        if self._due is None:
            self.decide()
        due, self._due = self._due or [], []
        display = getattr(self.coordinator, "display_system", None)
        for notice in due:
            if callable(show := getattr(display, "show_message", None)):
                show(notice.text, notice.severity, MODULE_ID)
            await emit_quietly(hook_registry(self.coordinator), WARNING, {**asdict(notice), "text": notice.text})
        return NOTHING

    def _is_used(self, notice: Notice) -> bool:
        plan = getattr(self.coordinator, "config", None)
        entries = MountPlan(plan).entries() if isinstance(plan, Mapping) else ()
        return any(notice.bundle_name in (each.module_id, *str(each.source or "").split("/")) for each in entries)
