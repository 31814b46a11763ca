"""Where things are: the home, references as text, and the folders of a bundle."""

from .construction import construct_agent_path, construct_context_path
from .discovery import find_bundle_root, find_files
from .home import get_amplifier_home
from .resolution import ParsedURI, ResolvedSource, normalize_path, parse_uri

__all__ = [
    "ParsedURI",
    "ResolvedSource",
    "construct_agent_path",
    "construct_context_path",
    "find_bundle_root",
    "find_files",
    "get_amplifier_home",
    "normalize_path",
    "parse_uri",
]
