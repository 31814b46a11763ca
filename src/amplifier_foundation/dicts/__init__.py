"""The one merge, and access by path."""

from .merge import deep_merge, merge_module_lists
from .navigation import get_nested, set_nested

__all__ = ["deep_merge", "get_nested", "merge_module_lists", "set_nested"]
