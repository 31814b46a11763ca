"""The key `configurator` of a settings file: what is off, and which values were changed."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amplifier_foundation.exceptions import BundleLoadError
from amplifier_foundation.io import write_with_backup

KEY = "configurator"


def write_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Put the settings into a file; the rest of it, comments included, stays as it is.

    Raises:
        BundleLoadError: the file is there and is not a YAML mapping.
        OSError: it cannot be written.
    """
    from ruamel.yaml import YAML  # keeps comments; needed nowhere else here
    from ruamel.yaml.error import YAMLError

    yaml = YAML()
    try:
        document = yaml.load(path.read_text(encoding="utf-8")) if path.exists() else None
    except YAMLError as error:
        raise BundleLoadError(f"{path} is not valid YAML: {error}", hint="correct it, or move it away") from error
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise BundleLoadError(f"{path}: the root must be a mapping, it is a {type(document).__name__}")
    document[KEY] = dict(settings)
    text = io.StringIO()
    yaml.dump(document, text)
    write_with_backup(path, text.getvalue())
