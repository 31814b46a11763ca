"""Programs with everything they start, for modules: they know the kernel and the kit, not what lies below."""

from amplifier_system.processes import ProcessTree, is_marker, reading

__all__ = ["ProcessTree", "is_marker", "reading"]
