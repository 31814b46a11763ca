"""What the kernel raises on purpose, sorted by who can act.

    AmplifierError
    ├── MountPlanError (ValueError)                author of the mount plan
    ├── NoProviderError (RuntimeError)             owner of the session: none could be mounted
    ├── ModuleNotFoundError                        the person who names or installs the module
    │   └── ModuleDiscoveryError (ValueError)        nothing by that id anywhere
    └── ModuleLoadError                            author of the module
        ├── ProviderNotMounted (ValueError)          its mount installed no provider
        ├── ModuleValidationError                    breaks the contract of its type
        ├── ModuleImportError (ValueError)           is there, cannot be imported
        └── ModulePathConflict (ImportError)         two folders claim one id or package

Errors of a language model call have a tree of their own in `llm_errors`.
"""


class AmplifierError(Exception):
    """Base class: catch this to handle anything Amplifier reports deliberately."""

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        super().__init__()
        self.reword(message, hint=hint)

    def reword(self, message: str, *, hint: str = "") -> None:
        """Say the same to another reader, or in better words, without losing the traceback and the cause."""
        self.args = (f"{message}\n  fix: {hint}" if hint else message,)
        self.message, self.hint = message, hint


class MountPlanError(AmplifierError, ValueError):
    """The mount plan has the wrong shape."""


class NoProviderError(AmplifierError, RuntimeError):
    """A turn cannot begin, since no provider is mounted; the message says what became of each."""


class ModuleNotFoundError(AmplifierError):
    """A module cannot be found; resolvers raise it when every attempt failed."""


class ModuleLoadError(AmplifierError):
    """A module is there but cannot be loaded."""


class ModuleDiscoveryError(ModuleNotFoundError, ValueError):
    """No entry point, folder or package has that module id."""

    reason_code = "missing_source"


class ModuleValidationError(ModuleLoadError):
    """A module breaks the contract of its type; `reason_code` says how."""

    def __init__(self, message: str = "", *, reason_code: str = "validation_failed", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason_code = reason_code


class ModuleImportError(ModuleLoadError, ValueError):
    """A module was found and Python could not import it or found no `mount` in it."""

    reason_code = "invalid_entry_point"


class ProviderNotMounted(ModuleLoadError, ValueError):
    """A provider module was mounted and no provider is there."""


class ModulePathConflict(ModuleLoadError, ImportError):
    """A module id or package is already loaded from another place in this process."""


def text_of(error: BaseException) -> str:
    """Return an error's text: its representation when it cannot be decoded, its type when it cannot be told at all."""
    try:
        return str(error)
    except UnicodeDecodeError:
        return repr(error)
    except Exception:  # noqa: BLE001 - another module's error, which is already being reported
        return type(error).__name__


def describe(error: BaseException) -> str:
    """Return an error's text for a person, who could make nothing of the bare key that is the text of a `KeyError`."""
    return repr(error) if isinstance(error, KeyError) and error.args else text_of(error)
