"""Files that survive a crash, for modules: they know the kernel and the kit, not what lies below."""

from amplifier_system.files import LineFile, Replacement, create_atomically, write_atomically

__all__ = ["LineFile", "Replacement", "create_atomically", "write_atomically"]
