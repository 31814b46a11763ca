"""The words of the contracts as types. Where a contract leaves a shape open, its name says what is meant."""

from collections.abc import Mapping
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.events import EventData as EventData

Coordinator = ModuleCoordinator | None
"""A session's coordinator. Without one, and where a stub lacks something, that counts as not available."""

Config = Mapping[str, Any]
"""The configuration of a module, as its mount plan has it."""

Message = dict[str, Any]
"""A message as contexts keep it: a `role`, `content`, and what belongs to them."""

Block = dict[str, Any]
"""A content block, with its `type`."""

JsonObject = dict[str, Any]
"""An object of JSON: arguments, a schema, options of a vendor."""
