"""What modules of the ecosystem mean without declaring it: the only names of such modules in the foundation.

Our own modules, and any other, declare the same in the `runtime.toml` of their package.
"""

EVENT_RECORDERS = frozenset({"hooks-logging", "hook-context-intelligence"})
"""Hooks that record the events named in `config.additional_events`; those that say so: `records_events = true`."""
