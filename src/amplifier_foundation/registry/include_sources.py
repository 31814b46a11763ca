"""From what stands under `includes` to the source that is loaded."""

import logging
import os
import posixpath
from collections.abc import Mapping
from pathlib import Path

from amplifier_foundation.paths.resolution import cut_fragment, parse_uri
from amplifier_system.urls import shown

from .bundle_reader import Reading
from .state import BundleState

logger = logging.getLogger(__name__)

_SUFFIXES = ("", ".yaml", ".yml", ".md", "/bundle.yaml", "/bundle.md")
_BUNDLE_SUFFIXES = (".md", ".yaml", ".yml")


def include_texts(reading: Reading) -> list[str]:
    """Return the includes of a bundle as written; items of an unknown shape are reported and left out."""
    texts = []
    for item in reading.bundle.includes:
        text = item.get("bundle") if isinstance(item, dict) else item
        if text and (isinstance(item, dict) or isinstance(text, str)):
            texts.append(str(text))
        else:
            logger.warning("%s: include %r is ignored; write a source or {bundle: source}", shown(reading.uri), item)
    return texts


def namespace_in(text: str) -> str | None:
    """Return the namespace of an include `namespace:path`, `None` for any other."""
    if "://" in text or text.startswith(("git+", "./", "../", "/")):
        return None
    namespace, colon, _ = text.partition(":")
    return namespace if colon else None


def is_relative(text: str) -> bool:
    """Say whether an include is a path that counts from the including file."""
    return text.startswith(("./", "../"))


def resolve_include(text: str, reading: Reading, states: Mapping[str, BundleState]) -> str | None:
    """Return the source that an include means, `None` when its namespace is unknown or there is no such path.

    Looks for files, so it is called in a worker thread.
    """
    if is_relative(text):
        return _resolve_relative(text, reading)
    namespace = namespace_in(text)
    if namespace is None:
        return text
    state = states.get(namespace)
    return resolve_in_namespace(text.partition(":")[2], state) if state else None


def file_uri(path: Path) -> str:
    """Return the `file://` source of a path; only what would not be read back as it stands is encoded."""
    text = str(path)
    return f"file://{_encoded(text) if '#' in text else text}"


def subdirectory_uri(uri: str, path: str) -> str:
    """Return the source of a path inside the tree that a git source names, whatever path `uri` names itself."""
    base, _ = cut_fragment(uri)
    return base if path in ("", ".") else f"{base}#subdirectory={_encoded(path)}"


def _resolve_relative(text: str, reading: Reading) -> str | None:
    directory, tree = reading.bundle.base_path, reading.source.source_root
    assert directory is not None
    written, hash_sign, fragment = text, "", ""
    if not (directory / text).exists():
        written, hash_sign, fragment = text.partition("#")
        if not hash_sign or not (directory / written).exists():
            return None if reading.is_fetched else text  # it may be there from the working directory's point of view
    path = Path(os.path.realpath(directory / written))
    if reading.is_fetched and not path.is_relative_to(os.path.realpath(tree)):
        return None
    if not fragment and parse_uri(reading.uri).is_git and path.is_relative_to(tree):
        return subdirectory_uri(reading.uri, path.relative_to(tree).as_posix())
    return file_uri(path) + hash_sign + fragment


def resolve_in_namespace(path: str, state: BundleState) -> str | None:
    """Return the source of a path in a registered bundle, `None` when it has no such path. Looks for files."""
    is_git = parse_uri(state.uri).is_git
    if state.local_path is None:
        inside = posixpath.join(_own_directory(state.uri, is_file=None), path)
        return subdirectory_uri(state.uri, inside) if is_git else None
    place = Path(state.local_path)
    is_file = place.is_file()
    base = place.parent if is_file else place
    relative = path.lstrip("/")
    found = next((name for suffix in _SUFFIXES if (base / (name := relative + suffix)).exists()), None)
    if found is None:
        return None
    if is_git:
        inside = posixpath.join(_own_directory(state.uri, is_file=is_file), found)
        return subdirectory_uri(state.uri, posixpath.normpath(inside))
    return file_uri((base / found).resolve())


def _own_directory(uri: str, *, is_file: bool | None) -> str:
    """Return the directory, inside its tree, of the bundle that a git source names; `None`: tell by the suffix."""
    path = cut_fragment(uri)[1] or ""
    if is_file if is_file is not None else path.endswith(_BUNDLE_SUFFIXES):
        return posixpath.dirname(path)
    return path


def _encoded(path: str) -> str:
    return path.replace("%", "%25").replace("#", "%23").replace("&", "%26")


def is_local(uri: str) -> bool:
    """Say whether a source is a path on this machine."""
    return parse_uri(uri).is_file


def names_subpath(uri: str) -> bool:
    """Say whether a source names a path inside its tree."""
    return bool(cut_fragment(uri)[1])
