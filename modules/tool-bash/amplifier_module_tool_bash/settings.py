"""The configuration of tool-bash."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amplifier_kit.config import LenientConfig
from amplifier_kit.sandbox.limits import Limits, read_limits, read_mode

from .safety import SafetyConfig, SafetyProfile, SafetyValidator

MODULE_ID = "tool-bash"

_DEFAULT_TIMEOUT_S = 30.0
_DEFAULT_OUTPUT_BYTES = 100_000
_EVERYTHING = ["*"]


class Settings:
    """What the configuration says. Raises `ValueError` for a safety profile that does not exist.

    A list of what is denied that cannot be read denies everything, a limit that cannot be read is narrow.
    """

    def __init__(self, config: Mapping[str, Any] | None) -> None:
        given = LenientConfig(MODULE_ID, config)
        self.working_dir = given.text("working_dir", None)
        self.timeout_s = given.number("timeout", _DEFAULT_TIMEOUT_S, above=0)
        self.max_timeout_s = given.number("max_timeout", None, above=0, when_unusable=self.timeout_s)
        self.require_approval = given.boolean("require_approval", True)
        self.allowed_commands = given.strings("allowed_commands", [])
        self.denied_commands = given.strings("denied_commands", [], takes_one=True, when_unusable=_EVERYTHING)
        self.max_output_bytes = given.integer("max_output_bytes", _DEFAULT_OUTPUT_BYTES, minimum=1)
        self.max_concurrent = given.integer("max_concurrent", None, minimum=1, when_unusable=1)
        self.env = {str(name): str(value) for name, value in given.mapping("env", {}).items() if value is not None}
        self.env_deny = given.strings("env_deny", [], takes_one=True, when_unusable=_EVERYTHING)
        log_dir = given.text("background_log_dir", None)
        self.background_log_dir = Path(log_dir).expanduser() if log_dir else None
        self.kill_background_on_cleanup = given.boolean("kill_background_on_cleanup", False)
        self.sandbox = read_mode(given, default="auto")
        self.limits: Limits = read_limits(given)
        self.validator = SafetyValidator(
            given.raw("safety_profile") or SafetyProfile.STRICT,
            SafetyConfig(self.allowed_commands, self.denied_commands, _overrides(given)),
        )
        given.warn_unknown()


def _overrides(given: LenientConfig) -> dict[str, Any]:
    value = given.raw("safety_overrides")
    if value is not None and not isinstance(value, Mapping):
        value = given.refuse("safety_overrides", value, "a mapping of allow and block", {"block": _EVERYTHING})
    overrides = LenientConfig(f"{MODULE_ID}: safety_overrides", value)
    lists = {
        "allow": overrides.strings("allow", []),
        "block": overrides.strings("block", [], takes_one=True, when_unusable=_EVERYTHING),
    }
    overrides.warn_unknown()
    return lists
