"""The name by which applications annotate prepared bundles."""

from amplifier_foundation.prepared import PreparedBundle

__all__ = ["PreparedBundle"]
