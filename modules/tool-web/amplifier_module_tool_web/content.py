"""What a body is: its type, whether it is text, and how that is encoded."""

import codecs
import re
from dataclasses import dataclass

from amplifier_kit.tools.input import ToolFailure

from .body import SNIFFED_BYTES

_HTML_TYPES = ("text/html", "application/xhtml+xml")
_HTML_START = re.compile(rb"\s*(<!doctype html|<html)[\s>]", re.IGNORECASE)
_BINARY_TYPES = re.compile(
    r"(image|audio|video|font)/.*|.*\+zip|application/("
    r"pdf|zip|gzip|x-gzip|x-tar|x-bzip2?|x-xz|zstd|x-7z-compressed|vnd\.rar|x-rar-compressed|java-archive|wasm|"
    r"msword|vnd\.ms-.*|vnd\.openxmlformats-.*|vnd\.oasis\.opendocument\..*|x-executable|x-sqlite3|vnd\.sqlite3|"
    r"vnd\.android\.package-archive|vnd\.debian\.binary-package|x-rpm|x-apple-diskimage|x-iso9660-image|"
    r"x-shockwave-flash|font-.*|x-font-.*)"
)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_META = re.compile(rb"<meta\s[^>]*?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WIDE = ("utf-16", "utf-32")
_NOT_CHARSETS = frozenset(("punycode", "unicode-escape", "raw-unicode-escape"))
_WITHOUT_ORDER = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}  # what is meant where no mark tells


@dataclass(frozen=True, slots=True)
class ContentType:
    """What the server says about a body; `name` is without parameters, None when it says nothing."""

    name: str | None
    charset: str | None

    @classmethod
    def parse(cls, header: str) -> "ContentType":
        name, _, parameters = header.partition(";")
        charset = _CHARSET.search(parameters)
        return cls(name.strip().lower() or None, _known(charset[1]) if charset else None)

    @property
    def is_binary(self) -> bool:
        return self.name is not None and _BINARY_TYPES.fullmatch(self.name) is not None

    def is_html(self, start: bytes) -> bool:
        if self.name is None:
            return _HTML_START.match(start.removeprefix(codecs.BOM_UTF8)) is not None
        return self.name in _HTML_TYPES

    def encoding(self, start: bytes) -> str:
        """Return how text is encoded: as the server says, a byte order mark, the document, else UTF-8."""
        mark = next((name for mark, name in _MARKS if start.startswith(mark)), None)
        if self.charset is not None:
            return mark if mark and mark.startswith(self.charset) else _WITHOUT_ORDER.get(self.charset, self.charset)
        meta = None if mark else _META.search(start)
        named = _known(meta[1].decode("ascii", "replace")) if meta else None
        return mark or ("utf-8" if named is None or named.startswith(_WIDE) else named)

    def require_text(self, start: bytes, total: int | None) -> None:
        """Raise `ToolFailure` for what cannot be shown as text."""
        has_null = b"\0" in start[:SNIFFED_BYTES] and not self.encoding(start).startswith(_WIDE)
        if self.is_binary or has_null:
            size = "unknown size" if total is None else f"{total} bytes"
            raise ToolFailure(
                f"Cannot show {self.name or 'binary content'} ({size}) as text; use save_to_file to save it",
                "unsupported_content",
                content_type=self.name,
                total_bytes=total,
            )


def _known(charset: str) -> str | None:
    """Return the name under which Python knows a charset, None when it does not."""
    try:
        name = codecs.lookup(charset).name
        b"x".decode(name, "replace")
    except (LookupError, ValueError):
        return None
    if name in _NOT_CHARSETS:
        return None
    return "cp1252" if name == "iso8859-1" else name  # as every browser reads it
