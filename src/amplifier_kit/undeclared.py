"""What modules of the ecosystem mean without declaring it: the only names of such modules in the kit.

Our own modules, and any other, declare the same things: a tool its `display_argument`, a message `pinned` in its
metadata.
"""

DISPLAY_ARGUMENTS = {"delegate": "agent"}
"""By the name of a tool, the argument under which a running call is shown."""

PINNING_METADATA = frozenset({"openai:tool_search_items"})
"""Metadata of messages that a vendor refers to later: dynamically loaded tools, without which calls are refused."""
