"""Text → text in which a label stands for whatever is sensitive."""

import re
from collections.abc import Iterable, Sequence

from .patterns import PatternSet, SensitivePattern, Span, find_unseen
from .personal_patterns import PII_PATTERNS
from .secret_patterns import SECRET_PATTERNS

DEFAULT_RULES = ("secrets", "pii-basic")

MASK = re.compile(r"\[REDACTED:[A-Z0-9_-]{1,32}\]")

_SHORTEST = 6  # a@b.cc
_MAX_ROUNDS = 8
_LONGEST_REMEMBERED = 64
_MAX_REMEMBERED = 4096


class Rule:
    """Patterns whose findings are masked with one label; none of them is shorter than `shortest`."""

    def __init__(self, label: str, patterns: Iterable[SensitivePattern], *, shortest: int = 1) -> None:
        self.mask = f"[REDACTED:{label}]"
        self.shortest = shortest
        self._patterns = PatternSet(patterns)

    def mask_once(self, text: str) -> str:
        """Return `text` with everything masked that is found in it now."""
        found = [*self._find(text), *find_unseen(text, self._find)]
        if not found:
            return text
        present = {match.span() for match in MASK.finditer(text)}  # they stay, unless more than they is to be masked
        pieces, done = [], 0
        for start, end in _joined([*found, *present]):
            if (start, end) not in present:
                pieces += [text[done:start], self.mask]
                done = end
        return "".join([*pieces, text[done:]])

    def _find(self, text: str) -> list[Span]:
        return [span for one in self._patterns.that_may_occur(text) for span in one.find(text)]


RULES = {
    "secrets": Rule("SECRET", SECRET_PATTERNS, shortest=_SHORTEST),
    "pii-basic": Rule("PII", PII_PATTERNS, shortest=_SHORTEST),
}


class TextMasker:
    """Masks text by rules, one after the other."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._shortest = min((rule.shortest for rule in rules), default=_SHORTEST)
        self._harmless: set[str] = set()  # short texts without anything to mask: most come again and again

    def mask(self, text: str) -> str:
        """Return `text` with masks in it, the very same object when there is nothing to mask.

        What stood beside a masked text may be recognised only then, so it is looked at again until nothing more is
        found; a text that does not come to rest is masked as a whole. Masking twice is therefore masking once.
        """
        if len(text) < self._shortest or text in self._harmless:
            return text
        for _ in range(_MAX_ROUNDS):
            masked = text
            for rule in self._rules:
                masked = rule.mask_once(masked)
            if masked == text:
                self._remember(text)
                return text
            text = masked
        return self._rules[0].mask

    def forget(self) -> None:
        """Let go of every text."""
        self._harmless.clear()

    def _remember(self, text: str) -> None:
        if len(text) <= _LONGEST_REMEMBERED:
            if len(self._harmless) >= _MAX_REMEMBERED:
                self._harmless.clear()
            self._harmless.add(text)


def mask_text(text: str, rules: Iterable[str] = DEFAULT_RULES) -> str:
    """Return `text` with everything masked that the named rules find."""
    return TextMasker(rules_named(rules)).mask(text)


def rules_named(names: Iterable[str]) -> list[Rule]:
    """Return the rules that go by these names, secrets first; a name that no rule has is left out."""
    wanted = set(names)
    return [rule for name, rule in RULES.items() if name in wanted]


def _joined(spans: list[Span]) -> list[Span]:
    """Return the spans in the order of the text, those that overlap made one."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined
