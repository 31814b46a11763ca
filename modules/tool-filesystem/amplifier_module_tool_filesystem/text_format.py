"""How a text file is written down: encoding, byte order mark and line endings, which an edit must not change."""

import re
from codecs import BOM_UTF8
from dataclasses import dataclass

from amplifier_kit.tools.input import ToolFailure

BINARY_PROBE_BYTES = 8192

_LINE_END = re.compile(r"\r\n|\n")


def is_binary(head: bytes) -> bool:
    """Say whether a file that begins like this is not text."""
    return b"\0" in head[:BINARY_PROBE_BYTES]


@dataclass(frozen=True, slots=True)
class TextFormat:
    """Encoding, byte order mark and dominant line ending of one file."""

    encoding: str = "utf-8"
    has_mark: bool = False
    line_end: str = "\n"

    @classmethod
    def of(cls, data: bytes) -> "TextFormat":
        has_mark = data.startswith(BOM_UTF8)
        try:
            data.decode("utf-8")
        except UnicodeDecodeError:
            return cls("latin-1", False, _dominant_line_end(data))
        return cls("utf-8", has_mark, _dominant_line_end(data))

    def decode(self, data: bytes) -> str:
        """Return the text without its mark."""
        return (data[len(BOM_UTF8) :] if self.has_mark else data).decode(self.encoding)

    def normalised(self, text: str) -> str:
        """Return the text with `\\n` as its only line ending; a lone `\\r` ends a line only where most lines do so."""
        text = text.replace("\r\n", "\n")
        return text.replace("\r", "\n") if self.line_end == "\r" else text

    def encode(self, text: str) -> bytes:
        """Return a text with the file's line ending and mark, as bytes."""
        if self.line_end != "\n":
            text = _LINE_END.sub(self.line_end, text)
        try:
            data = text.encode(self.encoding)
        except UnicodeEncodeError as exc:
            what = f"the character {text[exc.start]!a} cannot be written in {self.encoding}"
            raise ToolFailure(f"{what}, the encoding of the file", "encoding_error", encoding=self.encoding) from None
        return (BOM_UTF8 if self.has_mark and not data.startswith(BOM_UTF8) else b"") + data


def _dominant_line_end(data: bytes) -> str:
    """Return the line ending that occurs most; `\\n` when none does, or none more than it."""
    pairs = data.count(b"\r\n")
    counts = {"\n": data.count(b"\n") - pairs, "\r\n": pairs, "\r": data.count(b"\r") - pairs}
    return max(counts, key=lambda end: counts[end])
