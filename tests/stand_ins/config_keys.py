"""The keys that a module reads from its configuration, as the module itself reports them."""

import inspect
import logging
from importlib import import_module
from pathlib import Path

from amplifier_core.testing import MockCoordinator

UNKNOWN = "no_such_key"


class _Heard(logging.Handler):
    """Keeps what is reported about the unknown key."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if UNKNOWN in getattr(record, "unknown_keys", ()):
            self.known.update(record.__dict__["known_keys"])


async def config_keys_of(module_id: str, working_dir: Path) -> set[str]:
    """Mount a module with a key that it does not know, and return those that it does."""
    coordinator, heard = MockCoordinator(), _Heard()
    coordinator.register_capability("session.working_dir", str(working_dir))
    logging.getLogger().addHandler(heard)
    try:
        module = import_module(f"amplifier_module_{module_id.replace('-', '_')}")
        cleanup = await module.mount(coordinator, {UNKNOWN: 1})
    finally:
        logging.getLogger().removeHandler(heard)
    if cleanup is not None and inspect.isawaitable(ended := cleanup()):
        await ended
    return heard.known
