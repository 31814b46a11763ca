"""The texts of a bundle repository: their front matter, what they mention, and what they cost."""

import re
from pathlib import Path
from typing import Any

from amplifier_foundation.bundle.files import read_document
from amplifier_foundation.mentions.parser import parse_mentions

_CHARACTERS_OF_A_TOKEN = 4
_TIERS = ("#c8e6c9", "#fff9c4", "#ffe0b2", "#ffcdd2")
"""Green, yellow, orange and red."""
_UP_TO = {  # tokens that are green, yellow and orange; beyond, it is red
    "agent": (500, 1500, 3000),
    "behavior": (200, 600, 1500),
    "bundle": (500, 1500, 3000),
    "context": (500, 1500, 4000),
    "experiment": (500, 1500, 3000),
    "module": (300, 800, 2000),
    "provider": (100, 300, 800),
}
_TARGET = re.compile(r"(?<![@\w:/.+-])[A-Za-z][\w-]*:[A-Za-z][\w-]*(?![\w:/.-])")
_SUFFIXES = ("", ".md", ".yaml")


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has."""
    return len(text) // _CHARACTERS_OF_A_TOKEN


def color_tier(tokens: int, category: str) -> str:
    """Return the colour that says how much this is for a file of its kind.

    Raises:
        KeyError: there is no such category.
    """
    place = sum(tokens > most for most in _UP_TO[category])
    return _TIERS[place]


def parse_frontmatter(path: str | Path) -> tuple[dict[str, Any], str]:
    """Return the mapping and the body of a file; one in YAML is a mapping as a whole.

    Raises:
        BundleLoadError: it cannot be read, or what it has is not a mapping in YAML.
    """
    document = read_document(Path(path))
    return document.data, document.instruction or ""


def extract_mentions(text: str) -> list[str]:
    """Return the mentions `@namespace:path` in a text, each once, in order; code is not searched."""
    return [mention for mention in parse_mentions(text) if ":" in mention]


def extract_delegation_targets(text: str) -> list[str]:
    """Return the agents that a text names as `namespace:agent`, each once, in order.

    Mentions do not count, nor what a slash or a dot follows: that is a path.
    """
    return list(dict.fromkeys(_TARGET.findall(text)))


def resolve_local_mention(mention: str, repo_root: str | Path) -> Path | None:
    """Return the file of a repository that `@namespace:path` means, `.md` and `.yaml` added where it has no ending."""
    path = mention.removeprefix("@").rpartition(":")[2].lstrip("/")
    root = Path(repo_root).resolve()
    if not path:
        return None
    for suffix in _SUFFIXES:
        file = (root / f"{path}{suffix}").resolve()
        if file.is_relative_to(root) and file.is_file():
            return file
    return None
