"""Which commands a safety profile refuses."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .safety_rules import RULES, SafetyProfile
from .shell_programs import operators_of, programs_of
from .shell_words import TooDeepError

__all__ = ["SafetyConfig", "SafetyProfile", "SafetyResult", "SafetyValidator"]

_MAX_BYTES = 65_536
_WITH_OVERRIDES = frozenset({SafetyProfile.STANDARD, SafetyProfile.PERMISSIVE})


@dataclass(frozen=True, slots=True)
class SafetyConfig:
    """Commands that are allowed or denied beyond what a profile says.

    `safety_overrides` has the keys `allow` and `block`. What is allowed counts in the profiles `standard` and
    `permissive`, what is denied in all but `unrestricted`.
    """

    allowed_commands: Sequence[str] = ()
    denied_commands: Sequence[str] = ()
    safety_overrides: dict[str, Any] | None = None

    def overrides(self, key: str) -> list[str]:
        return list((self.safety_overrides or {}).get(key) or [])


@dataclass(frozen=True, slots=True)
class SafetyResult:
    """The verdict; a denial says why, by which rule, and what would allow the command."""

    allowed: bool
    reason: str | None = None
    matched_pattern: str | None = None
    hint: str | None = None
    is_understood: bool = True


@dataclass(frozen=True, slots=True)
class _Pattern:
    """An entry of a list of commands, in which `*` stands for anything and case does not count."""

    text: str
    expression: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        parts = map(re.escape, self.text.strip().split("*"))
        object.__setattr__(self, "expression", re.compile(".*".join(parts), re.IGNORECASE | re.DOTALL))

    def covers(self, command: str, shell: str) -> bool:
        """Say whether the pattern allows the whole command; `*` does not stand for a second one."""
        if self.expression.fullmatch(command) is None:
            return False
        return "*" not in self.text or all(operator in self.text for operator in operators_of(command, shell))

    def finds(self, texts: Iterable[str]) -> bool:
        """Say whether the pattern denies one of the texts; without `*` it may stand anywhere in it."""
        if not self.text.strip():
            return False
        is_met = self.expression.fullmatch if "*" in self.text else self.expression.search
        return any(is_met(text) for text in texts)


class SafetyValidator:
    """Judges commands by one profile. Raises `ValueError` for a profile that does not exist."""

    def __init__(self, profile: str = SafetyProfile.STRICT, config: SafetyConfig | None = None) -> None:
        try:
            self.profile = SafetyProfile(profile)
        except ValueError:
            valid = ", ".join(SafetyProfile)
            raise ValueError(f"Unknown profile '{profile}'. Valid profiles: {valid}") from None
        config = config or SafetyConfig()
        self._allowed = [_Pattern(text) for text in (*config.overrides("allow"), *config.allowed_commands)]
        self._denied = [_Pattern(text) for text in config.denied_commands]
        self._blocked = [_Pattern(text) for text in config.overrides("block")]

    def validate(self, command: str, shell: str = "bash") -> SafetyResult:
        """Judge a command that `shell` would run."""
        command = command.strip()
        if self.profile is SafetyProfile.UNRESTRICTED or not command:
            return SafetyResult(allowed=True)
        if len(command.encode("utf-8", "surrogatepass")) > _MAX_BYTES:
            return _not_understood()
        try:
            return self._judge(command, shell)
        except (TooDeepError, RecursionError):
            return _not_understood()

    def _judge(self, command: str, shell: str) -> SafetyResult:
        if self.profile in _WITH_OVERRIDES and any(pattern.covers(command, shell) for pattern in self._allowed):
            return SafetyResult(allowed=True)
        programs = programs_of(command, shell)
        for rule in RULES:
            if self.profile in rule.profiles and rule.is_met(command, programs):
                return SafetyResult(allowed=False, reason=rule.reason, matched_pattern=rule.name, hint=rule.hint)
        texts = [command, *programs.texts]
        for key, patterns in (("denied_commands", self._denied), ("safety_overrides.block", self._blocked)):
            for pattern in patterns:
                if pattern.finds(texts):
                    hint = f"it is listed in {key}; only safety_profile 'unrestricted' ignores that list"
                    return SafetyResult(
                        allowed=False, reason="the configuration denies it", matched_pattern=pattern.text, hint=hint
                    )
        return SafetyResult(allowed=True)


def _not_understood() -> SafetyResult:
    """Return the verdict on what cannot be read in reasonable time: a person who says yes outranks it."""
    hint = "split the command; even the profile 'permissive' wants to read it, only 'unrestricted' does not"
    reason = "it is nested too deeply, or too long, to be understood"
    return SafetyResult(False, reason, "non-literal command", hint, is_understood=False)
