"""What the exit codes of `amplifierd` mean; `docs/daemon.md` has the same table."""

from enum import IntEnum

from amplifierd.exceptions import (
    FormatUnsupportedError,
    HomeInUseError,
    PortInUseError,
    SettingsError,
    UnsafeBindError,
)


class ExitCode(IntEnum):
    OK = 0
    FAILURE = 1
    CONFIGURATION = 2
    HOME_IN_USE = 3
    UNSAFE_BIND = 4
    PORT_IN_USE = 98


_CODES: dict[type[Exception], ExitCode] = {
    SettingsError: ExitCode.CONFIGURATION,
    FormatUnsupportedError: ExitCode.CONFIGURATION,
    HomeInUseError: ExitCode.HOME_IN_USE,
    UnsafeBindError: ExitCode.UNSAFE_BIND,
    PortInUseError: ExitCode.PORT_IN_USE,
}


def code_of(error: Exception) -> ExitCode:
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), ExitCode.FAILURE)
