"""The name by which applications find include chains."""

from .records import walk_include_chain, walk_include_chains

__all__ = ["walk_include_chain", "walk_include_chains"]
