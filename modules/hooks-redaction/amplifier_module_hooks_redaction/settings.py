"""The configuration of hooks-redaction, a guard: whatever does not fit is replaced by what is safe."""

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from amplifier_core.events import TOOL_POST, TOOL_PRE
from amplifier_kit.config import ModuleConfig, make_do
from amplifier_kit.redaction.pattern_process import PatternProcess, is_plain
from amplifier_kit.redaction.patterns import Find, SensitivePattern, Span
from amplifier_kit.redaction.scrubbing import DEFAULT_RULES, RULES, Rule

MODULE_ID = "hooks-redaction"

_DEFAULT_LABEL = "SECRET"
_LABEL = re.compile(r"[A-Z0-9_-]{1,32}")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RedactionSettings:
    """What is masked, and where; `rules` in the order in which they apply."""

    rule_names: list[str]
    rules: list[Rule]
    searches: PatternProcess
    allowlist: list[str]
    skip_events: frozenset[str]
    priority: int

    @classmethod
    def read(cls, values: Mapping[str, Any] | None) -> Self:
        """Read a mount plan's configuration; a value that does not fit is logged."""
        config = ModuleConfig(MODULE_ID, values, is_guard=True)
        names = _rule_names(config)
        labelled = list(_custom_patterns(config))
        searches = PatternProcess([pattern.pattern for _, pattern in labelled])
        custom = [
            Rule(label, [SensitivePattern("custom", (), _search(pattern, partial(searches.find, number)))])
            for number, (label, pattern) in enumerate(labelled)
        ]
        secrets, personal = ([RULES[name]] if name in names else [] for name in ("secrets", "pii-basic"))
        settings = cls(
            rule_names=[*names, "custom"] if custom else names,
            rules=[*secrets, *custom, *personal],
            searches=searches,
            allowlist=config.strings("allowlist", []),
            skip_events=frozenset(config.strings("skip_events", [TOOL_PRE, TOOL_POST])),
            priority=config.integer("priority", 10),
        )
        if config.accept("enabled_events"):
            logger.warning("%s: enabled_events is ignored: a guard that is filtered guards nothing", MODULE_ID)
        config.warn_unknown()
        return settings


def _rule_names(config: ModuleConfig) -> list[str]:
    names = config.strings("rules", list(DEFAULT_RULES))
    known = [name for name in dict.fromkeys(names) if name in RULES]
    if unknown := [name for name in names if name not in RULES]:
        make_do(f"{MODULE_ID}: unknown rules: {', '.join(unknown)}", "; they are ignored")
        if not known:
            return config.refuse("rules", names, "a list of " + ", ".join(RULES), list(DEFAULT_RULES))
    return known


def _custom_patterns(config: ModuleConfig) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield labels and patterns; those that are none are left out."""
    given = config.raw("custom_patterns")
    listed = [given] if isinstance(given, str | Mapping) else config.items("custom_patterns", [])
    for number, item in enumerate(listed):
        place = f"custom_patterns[{number}]"
        pattern, label = (item.get("pattern"), item.get("label")) if isinstance(item, Mapping) else (item, None)
        try:
            regex = _compiled(pattern)
        except (TypeError, re.error, OverflowError, RecursionError) as exc:
            make_do(f"{MODULE_ID}: {place}: {exc}", "; it is skipped", level=logging.ERROR)
            continue
        shown = str(label or _DEFAULT_LABEL).upper()
        if _LABEL.fullmatch(shown) is None:
            shown = config.refuse(f"{place}.label", label, "a word", _DEFAULT_LABEL)
        yield shown, regex


def _compiled(pattern: Any) -> re.Pattern[str]:
    if not isinstance(pattern, str):
        raise TypeError(f"a pattern is a string, not a {type(pattern).__name__}")
    return re.compile(pattern)


def _search(pattern: re.Pattern[str], elsewhere: Find) -> Find:
    """Return the search for a pattern: here if that takes no long time, else where it can be given up."""

    def find(text: str) -> Iterator[Span]:
        return (match.span() for match in pattern.finditer(text) if match[0])

    return find if is_plain(pattern.pattern) else elsewhere
