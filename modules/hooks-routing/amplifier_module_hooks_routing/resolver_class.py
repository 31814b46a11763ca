"""The name by which the ecosystem finds the resolver."""

from .resolver import MatrixModelRoleResolver

__all__ = ["MatrixModelRoleResolver"]
