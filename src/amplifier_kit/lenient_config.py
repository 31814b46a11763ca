"""Configuration of providers and tools: a value that cannot be used is reported and replaced.

It is fatal only for a module that the plan calls `required`.
"""

import difflib
import os
import re
from collections.abc import Mapping
from typing import ClassVar, TypeVar

from amplifier_kit.types import Config

from .config import ModuleConfig, make_do

T = TypeVar("T")

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
