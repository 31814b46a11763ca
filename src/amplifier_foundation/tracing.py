"""The name by which applications find ids of child sessions."""

from amplifier_system.tracing import generate_sub_session_id

__all__ = ["generate_sub_session_id"]
