"""What the three tools have in common: input, worker thread, answers, approval."""

import logging
import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

from amplifier_core import ToolResult
from amplifier_kit.concerns import Concern, refusal_of
from amplifier_kit.tools.effects import WRITE
from amplifier_kit.tools.input import ToolFailure, read_input
from amplifier_kit.tools.runs import AnsweringTool, announce, in_worker

from .workspace import Workspace

logger = logging.getLogger(__name__)


class FileTool(AnsweringTool):
    """A tool for one file; what it does there is `work`, in a worker thread."""

    name: ClassVar[str]
    effects: ClassVar[frozenset[str]]
    description: ClassVar[str]
    input_schema: ClassVar[dict[str, Any]]
    texts: ClassVar[Mapping[str, str]] = {"file_path": "file_path is required"}
    event: ClassVar[str]
    risk_level: ClassVar[str]
    os_error: ClassVar[str]  # how a message about an error of the operating system begins

    def __init__(
        self, config: Mapping[str, Any] | None, coordinator: Any = None, *, workspace: Workspace | None = None
    ) -> None:
        self.workspace = workspace or Workspace(config, coordinator)

    @property
    def require_approval(self) -> bool:
        return self.workspace.settings.require_approval

    def get_metadata(self) -> dict[str, Any]:
        """Return what the approval hook wants to know."""
        return {"requires_approval": self.require_approval, "approval_hints": {"risk_level": self.risk_level}}

    def check(self, given: dict[str, Any]) -> None:
        """Raise `ToolFailure` for input that cannot be right whatever the file is."""

    def work(self, shown: Path, given: dict[str, Any], stop: Event) -> tuple[dict[str, Any], int | None]:
        """Do the work; returns the output, and the number of bytes to announce, if any."""
        raise NotImplementedError

    def concerns_of(self, given: Mapping[str, Any]) -> tuple[Concern, ...]:
        """Return the running place that a call would write, which a person is asked about by name."""
        file_path = given.get("file_path")
        if WRITE not in self.effects or not isinstance(file_path, str) or not file_path:
            return ()
        try:
            return self.workspace.concerns_of(self.workspace.locate(file_path))
        except (ToolFailure, ValueError):  # it leads nowhere, and the call says so
            return ()

    def require_size(self, data: bytes) -> None:
        """Raise `ToolFailure` for more than may be written."""
        limit = self.workspace.settings.max_write_bytes
        if len(data) > limit:
            raise ToolFailure(f"The content has {len(data)} bytes, allowed are {limit}", "too_large")

    async def answer(self, given: Any) -> ToolResult:
        given = read_input(self.name, self.input_schema, given, texts=self.texts)
        self.check(given)
        logger.debug("%s %s", self.name, given["file_path"])
        await self._agree_to(self.concerns_of(given))
        output, count = await in_worker(lambda stop: self._work(given, stop))
        if count is not None:
            await announce(self.workspace.coordinator, self.event, {"path": output["file_path"], "bytes": count})
        return ToolResult(success=True, output=output)

    async def _agree_to(self, concerns: tuple[Concern, ...]) -> None:
        """Make sure that a person agreed to what is about to be written; raises `ToolFailure`."""
        for concern in concerns:
            if refusal := await refusal_of(self.workspace.coordinator, concern, self.name):
                raise ToolFailure(f"Access denied: {refusal}", "access_denied", rule="running_places")
            self.workspace.agreed.add(concern.subject)

    def _work(self, given: dict[str, Any], stop: Event) -> tuple[dict[str, Any], int | None]:
        shown = self.workspace.locate(given["file_path"])
        try:
            return self.work(shown, given, stop)
        except OSError as exc:
            message = f"{self.os_error}: {exc.strerror or exc} ({shown})"
            raise ToolFailure(message, "io_error", type="OSError", errno=exc.errno) from exc


# How a text file is written down: encoding, byte order mark and line endings, which an edit must not change.


BINARY_PROBE_BYTES = 8192

_LINE_END = re.compile(r"\r\n|\n")


def is_binary(head: bytes) -> bool:
    """True if a file that begins like this is not text."""
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
