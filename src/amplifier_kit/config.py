"""Reading a module's configuration: defaults, plain conversions, errors that name module, key and range, typos."""

import difflib
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

from amplifier_core.mounting import current_mounting

from .types import Config, JsonObject

T = TypeVar("T")

logger = logging.getLogger(__name__)

V = TypeVar("V")
N = TypeVar("N", int, float)


class ModuleConfig:
    """One module's configuration, read key by key.

    `None` stands for the default. A value that does not fit raises `ValueError`; for a guard, whose absence would be
    worse than any setting, it is logged and replaced by the safe value instead: `when_unusable` where that is given,
    else the default. A guard that the plan calls `required` raises: the session does not start without it then.
    `warn_unknown` comes last.
    """

    _switches: ClassVar[Mapping[str, bool]] = {"true": True, "false": False}

    def __init__(self, module_id: str, config: Config | None, *, is_guard: bool = False) -> None:
        self.module_id = module_id
        self._is_guard = is_guard
        if config is not None and not isinstance(config, Mapping):
            read = _settings_object(config)
            config = self.refuse("config", config, "a mapping", None) if read is None else read
        self._config = dict(config or {})
        self._known: set[str] = set()

    def integer(
        self,
        key: str,
        default: T,
        *,
        minimum: int | None = None,
        maximum: int | None = None,
        aliases: Sequence[str] = (),
        when_unusable: int | None = None,
    ) -> int | T:
        """Return a whole number within the bounds."""
        allowed = f"an integer{_bounds(minimum, maximum)}"

        def convert(value: object) -> int:
            return _within(_integer(value), minimum, maximum)

        return self._read(key, default, allowed, convert, aliases, when_unusable=when_unusable)

    def number(
        self,
        key: str,
        default: T,
        *,
        minimum: float | None = None,
        maximum: float | None = None,
        above: float | None = None,
        aliases: Sequence[str] = (),
        when_unusable: float | None = None,
    ) -> float | T:
        """Return a finite number within the bounds; `above` is a lower bound that is itself excluded."""
        allowed = f"a number{f' > {above}' if above is not None else ''}{_bounds(minimum, maximum)}"

        def convert(value: object) -> float:
            converted = _within(_number(value), minimum, maximum)
            if above is not None and converted <= above:
                raise ValueError
            return converted

        return self._read(key, default, allowed, convert, aliases, when_unusable=when_unusable)

    def boolean(self, key: str, default: bool, *, when_unusable: bool | None = None) -> bool:
        """Return true or false, even if they are given as text."""

        def convert(value: object) -> bool:
            return self._switches[str(value).strip().lower()]

        return self._read(key, default, "true or false", convert, when_unusable=when_unusable)

    def text(self, key: str, default: T, *, aliases: Sequence[str] = ()) -> str | T:
        """Return a string."""
        return self._read(key, default, "a string", lambda value: _typed(value, str), aliases)

    def choice(self, key: str, default: str, choices: Sequence[str], *, when_unusable: str | None = None) -> str:
        """Return one of `choices`."""

        def convert(value: object) -> str:
            if value not in choices:
                raise ValueError
            return str(value)

        return self._read(key, default, "one of " + ", ".join(choices), convert, when_unusable=when_unusable)

    def strings(
        self, key: str, default: T, *, takes_one: bool = False, when_unusable: list[str] | None = None
    ) -> list[str] | T:
        """Return a list of strings; with `takes_one` a single string counts as a list of one."""

        def convert(value: object) -> list[str]:
            items = [value] if takes_one and isinstance(value, str) else _typed(value, list)
            return [_typed(item, str) for item in items]

        return self._read(key, default, "a list of strings", convert, when_unusable=when_unusable)

    def mapping(self, key: str, default: Config) -> JsonObject:
        """Return a mapping, copied."""
        return self._read(key, dict(default), "a mapping", lambda value: dict(_typed(value, Mapping)))

    def items(self, key: str, default: Sequence[Any]) -> list[Any]:
        """Return a list of anything, copied."""
        return self._read(key, list(default), "a list", lambda value: list(_typed(value, list)))

    def raw(self, key: str) -> Any:
        """Return the value as it is, None when it is not there."""
        self._known.add(key)
        return self._config.get(key)

    def is_set(self, key: str) -> bool:
        """True if the configuration gives the key a value of its own."""
        return self._config.get(key) is not None

    def accept(self, *keys: str) -> list[str]:
        """Take note of keys that have no effect; returns those that are set."""
        self._known.update(keys)
        return [key for key in keys if self.is_set(key)]

    def refuse(self, key: str, value: object, allowed: str, safe: T) -> T:
        """Report a value that does not fit: raise, or for a guard log and return the safe value."""
        problem = f"{self.module_id}: config key {key!r} is {value!r}, allowed: {allowed}"
        if not self._is_guard or is_required():
            raise ValueError(problem)
        logger.error("%s; %r is used instead", problem, safe)
        return safe

    def warn_unknown(self) -> None:
        """Log the keys that were never read: most are misspelt."""
        if keys := sorted(map(str, set(self._config) - self._known)):
            unknown = ", ".join(keys)
            if is_required():
                raise ValueError(f"{self.module_id}: unknown config keys: {unknown}")
            logger.warning(
                "%s: unknown config keys are ignored: %s", self.module_id, unknown, extra=self._about_unknown(keys)
            )

    def _about_unknown(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return what an application may want to know about keys that nothing reads; it is on the log record."""
        return {"module_id": self.module_id, "unknown_keys": tuple(keys), "known_keys": tuple(sorted(self._known))}

    def _read(
        self,
        key: str,
        default: T,
        allowed: str,
        convert: Callable[[object], V],
        aliases: Sequence[str] = (),
        *,
        when_unusable: V | None = None,
    ) -> V | T:
        self._known.update((key, *aliases))
        found = next((name for name in (key, *aliases) if self._config.get(name) is not None), None)
        if found is None:
            return default
        try:
            return convert(self._config[found])
        except (TypeError, ValueError, OverflowError, KeyError):
            safe = default if when_unusable is None else when_unusable
            return self.refuse(found, self._config[found], allowed, safe)


def _settings_object(value: object) -> dict[str, Any] | None:
    """Return what a model or a namespace holds, None for anything else; a plan may have either as a configuration."""
    if isinstance(value, SimpleNamespace):
        return dict(vars(value))
    dump = getattr(value, "model_dump", None)
    return dict(dump()) if callable(dump) else None


def _bounds(minimum: float | None, maximum: float | None) -> str:
    lower = f" ≥ {minimum}" if minimum is not None else ""
    upper = f" ≤ {maximum}" if maximum is not None else ""
    return lower + (" and" if lower and upper else "") + upper


def _within(value: N, minimum: float | None, maximum: float | None) -> N:
    if (minimum is not None and value < minimum) or (maximum is not None and value > maximum):
        raise ValueError
    return value


def _typed(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    return value


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError
    return int(value)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    converted = float(value)
    if converted != converted or converted in (float("inf"), float("-inf")):
        raise ValueError
    return converted


def make_do(
    problem: str, instead: str = "", *, level: int = logging.WARNING, about: Mapping[str, Any] | None = None
) -> None:
    """Report a mistake in the configuration, and how the module makes do; in that of a required one it is an error.

    `about` is set on the log record, for applications.

    Raises:
        ValueError: the plan calls the module that mounts at the moment `required`.
    """
    if is_required():
        raise ValueError(problem)
    logger.log(level, "%s%s", problem, instead, extra=about)


def is_required() -> bool:
    """True if the plan calls the module that mounts at the moment `required`."""
    mounting = current_mounting()
    return mounting is not None and mounting.is_required


# Configuration of providers and tools: a value that cannot be used is reported and replaced.
#
# It is fatal only for a module that the plan calls `required`.


_UNEXPANDED = re.compile(r"\$\{.+\}")
# What applications put into any module's configuration.
_INFRASTRUCTURE = frozenset({"id", "module", "source", "instance_id", "name", "priority", "working_dir"})


class LenientConfig(ModuleConfig):
    """Reads like `ModuleConfig`; an empty or unexpanded string counts as unset, and nothing raises.

    Of a module that the plan calls `required` a wrong configuration is an error, `ValueError`.
    """

    _switches: ClassVar[Mapping[str, bool]] = {
        **dict.fromkeys(("1", "true", "yes", "on"), True),
        **dict.fromkeys(("0", "false", "no", "off"), False),
    }

    def __init__(self, module_id: str, config: Config | None) -> None:
        super().__init__(module_id, config)
        for key, value in list(self._config.items()):
            if isinstance(value, str) and _UNEXPANDED.fullmatch(value):
                unset = "" if value[2:-1] in os.environ else f" ({value[2:-1]} is not set in the environment, either)"
                make_do(
                    f"{module_id}: config key {key!r} is {value}, which the application has not expanded",
                    f"; it counts as unset{unset}",
                )
                del self._config[key]
            elif value == "":
                del self._config[key]

    def refuse(self, key: str, value: object, allowed: str, safe: T) -> T:
        """Report a value that does not fit, and return the one to use instead."""
        make_do(f"{self.module_id}: config key {key!r} is {value!r}, allowed: {allowed}", f"; {safe!r} is used")
        return safe

    def warn_unknown(self) -> None:
        """Log each key that was never read, with the known key it resembles."""
        for key in sorted(map(str, set(self._config) - self._known - _INFRASTRUCTURE)):
            near = difflib.get_close_matches(key, self._known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            make_do(
                f"{self.module_id}: unknown config key {key!r}", f" is ignored{hint}", about=self._about_unknown([key])
            )
