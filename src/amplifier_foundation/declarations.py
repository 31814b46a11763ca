"""What a module declares about itself in the `runtime.toml` of its package.

A declaration is read, not run: no module is imported for it.
"""

import logging
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

DECLARATION = "runtime.toml"


def read_declaration(package: Path) -> dict[str, Any] | None:
    """Return what the module in a package directory declares, None when it declares nothing.

    A file that cannot be read is logged and counts as empty.
    """
    declaration = package / DECLARATION
    if not declaration.is_file():
        return None
    try:
        import tomllib  # parsing TOML is needed only where something is declared

        return tomllib.loads(declaration.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        logger.warning("%s is not read: %s", declaration, error)
        return {}
