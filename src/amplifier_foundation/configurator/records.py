"""What a dashboard shows of one part of a session."""

from dataclasses import dataclass, field
from typing import Any, Literal

from amplifier_foundation.bundle import Origin

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
