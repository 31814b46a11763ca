"""What can be searched of a message, and what it takes for a text to be found.

Words are runs of letters and digits in any case and without accents; of scripts that put no spaces between words each
character counts as one. A text is found where all of its parts occur, each as its words in a row: `foo-bar baz` finds
`baz, foo bar`.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

LONGEST_TEXT = 100_000
"""So many characters of a message are searched."""

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_AROUND = 60


def message_text(message: dict[str, Any]) -> str:
    """Return what a message says: its text, or the texts of its blocks; results of tools are not searched."""
    if message.get("role") == "tool":
        return ""
    content = message.get("content")
    if isinstance(content, str):
        return content[:LONGEST_TEXT]
    if not isinstance(content, list):
        return ""
    texts = (block.get("text") for block in content if isinstance(block, dict))
    return "\n".join(text for text in texts if isinstance(text, str))[:LONGEST_TEXT]


def indexed_text(text: str) -> str:
    """Return a text such that an index which parts it at everything but letters and digits finds the same words."""
    return text if text.isascii() else " ".join(words(text))


def words(text: str) -> list[str]:
    return _WORD.findall(_folded(text))


class Wanted:
    """A text that someone looks for; an empty one is found nowhere."""

    def __init__(self, text: str) -> None:
        self.phrases = [phrase for part in text.split() if (phrase := words(part))]
        self._patterns = [re.compile(_phrase_pattern(phrase)) for phrase in self.phrases]

    def find(self, text: str) -> str | None:
        """Return the surroundings of the first place if everything wanted is in `text`."""
        folded = " ".join(words(text))
        spaced = f" {folded} "
        if not self.phrases or not all(f" {' '.join(phrase)} " in spaced for phrase in self.phrases):
            return None
        return self.snippet(text)

    def snippet(self, text: str) -> str:
        """Return the surroundings of the first place, the beginning of the text when there is none."""
        found = self._patterns[0].search(_folded_in_place(text))
        place = found.start() if found else 0
        start, end = max(0, place - _AROUND), place + 2 * _AROUND
        cut = " ".join(text[start:end].split())
        return f"{'…' if start else ''}{cut}{'…' if end < len(text) else ''}"


def _phrase_pattern(phrase: list[str]) -> str:
    return r"(?<![^\W_])" + r"[\W_]*".join(re.escape(word) for word in phrase)


def _folded(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.lower())
    return "".join(char for char in decomposed if not unicodedata.combining(char)) if not text.isascii() else decomposed


def _folded_in_place(text: str) -> str:
    """Fold character by character, so that places stay what they are."""
    return text.lower() if text.isascii() else "".join(_folded(char)[:1] or " " for char in text)
