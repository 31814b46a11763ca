"""From a bundle file to a bundle."""

import logging
from pathlib import Path

from amplifier_core.module_origins import retold

from .files import find_file, read_document
from .gaps import find_misspelled
from .model import Bundle
from .sections import parse_sections

logger = logging.getLogger(__name__)


def read_bundle(path: Path, *, reference: str | None = None) -> Bundle:
    """Read a bundle file, or the one in a directory; includes are not followed. Blocks while it reads.

    `reference` is what a person calls that path, if it is a copy.

    Raises:
        BundleLoadError: there is no such file, or it is unusable.
        BundleValidationError: `providers`, `tools` or `hooks` is not a list of mappings.
    """
    file = find_file(path)
    document = read_document(file)
    bundle = Bundle(**parse_sections(document.data, file.parent, file), instruction=document.instruction)
    bundle._file = file
    bundle._agent_instruction = bundle.from_meta
    bundle._remarks = tuple(find_misspelled(document.data))
    if not document.data.keys() & {"bundle", "meta"}:
        place = str(file) if reference is None else retold(str(file), path, reference)
        logger.warning("%s has no section 'bundle:' and is read as a bundle without a name", place)
    return bundle
