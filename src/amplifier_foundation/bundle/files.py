"""Bundle files on disk: markdown with front matter, or YAML."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from amplifier_foundation.exceptions import BundleLoadError
from amplifier_foundation.io.frontmatter import split_frontmatter
from amplifier_foundation.io.yaml import load_yaml, yaml_problem
from amplifier_foundation.paths.discovery import BUNDLE_FILES, find_bundle_file

MAX_BYTES = 32 * 1024 * 1024

_YAML_SUFFIXES = (".yaml", ".yml")
_MARKDOWN_SUFFIX = ".md"


@dataclass(frozen=True, slots=True)
class Document:
    """A bundle or agent file, parsed: its mapping and, for markdown, its text."""

    data: dict[str, Any]
    instruction: str | None


def find_file(path: Path) -> Path:
    """Return the bundle file that a path means: the file itself, or the one in that directory.

    Raises:
        BundleLoadError: a directory without one, or a file of another format.
    """
    if path.is_dir():
        file = find_bundle_file(path)
        if file is None:
            raise BundleLoadError(
                f"{path} is not a bundle: missing bundle.md or bundle.yaml",
                hint=f"add {' or '.join(BUNDLE_FILES)} there, or name the bundle's file",
            )
        return file
    if path.suffix.lower() not in (_MARKDOWN_SUFFIX, *_YAML_SUFFIXES):
        raise BundleLoadError(f"Unknown bundle format: {path}", hint="a bundle is a .md, .yaml or .yml file")
    return path


def read_document(file: Path) -> Document:
    """Read and parse a file.

    Raises:
        BundleLoadError: it cannot be read, is not UTF-8, not YAML, too large, or its data is not a mapping.
    """
    text = read_text(file)
    front, body, first_line = (text.lstrip("\ufeff"), "", 1) if is_yaml(file) else split_frontmatter(text)
    try:
        data = load_yaml(front) if front else None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: such as a date that does not exist
        where = yaml_problem(error, first_line=first_line)
        raise BundleLoadError(f"{file} is not valid YAML: {where}", hint="correct that line") from error
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise BundleLoadError(
            f"{file}: the root must be a mapping with a key 'bundle', it is a {type(data).__name__}",
            hint="write bundle: {name: my-bundle, version: 1.0.0}",
        )
    return Document(data, body.strip() or None)


def read_text(file: Path) -> str:
    """Return a file's text, its lines ended by `\\n`.

    Raises:
        BundleLoadError: it cannot be read, is not a regular file, not UTF-8, or too large.
    """
    try:
        info = file.stat()
        if not stat.S_ISREG(info.st_mode):
            raise BundleLoadError(f"{file} is not a regular file")
        if info.st_size > MAX_BYTES:
            raise BundleLoadError(f"{file} has {info.st_size:,} bytes; a bundle has at most {MAX_BYTES:,}")
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise BundleLoadError(f"{file} is not UTF-8: {error}", hint="save the file as UTF-8") from error
    except OSError as error:
        raise BundleLoadError(f"{file} cannot be read: {error}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def is_yaml(file: Path) -> bool:
    """Say whether a file is YAML as a whole, without a markdown body."""
    return file.suffix.lower() in _YAML_SUFFIXES
