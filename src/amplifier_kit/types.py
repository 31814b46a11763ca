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

# What modules of the ecosystem mean without declaring it: the only names of such modules in the kit.
#
# Our own modules, and any other, declare the same things: a tool its `display_argument`, a message `pinned` in its
# metadata.


DISPLAY_ARGUMENTS = {"delegate": "agent"}
"""By the name of a tool, the argument under which a running call is shown."""

AGENT_TOOLS = frozenset({*DISPLAY_ARGUMENTS, "task"})
"""The tools whose results are answers of agents."""

PINNING_METADATA = frozenset({"openai:tool_search_items"})
"""Metadata of messages that a vendor refers to later: dynamically loaded tools, without which calls are refused."""

# Data of events that a hook masked for logs: it carries a stamp, and is not meant for the conversation.
#
# Any hook may stamp what it returns: `{**masked, STAMP: {"applied": True, …}}`. Loops then leave prompt, tool input
# and results as they were; a log takes the data as it is, but for the keys that the stamp names as `skipped`.


STAMP = "redaction"


def is_log_view(data: Mapping[str, object]) -> bool:
    """True if data of an event is a masked view."""
    return STAMP in data
