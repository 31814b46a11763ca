"""What a server answered, as a tool result: text for everything, images as images."""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amplifier_core import ImageBlock, TextBlock, ToolResult
from amplifier_core.utils import json_safe

from .redaction import Redactor

if TYPE_CHECKING:
    from mcp.types import CallToolResult

_SHOWN_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_LONGEST_MESSAGE = 2000


@dataclass(frozen=True, slots=True)
class _Part:
    """What became of one block: its text, None where that is cut off, and the image where one can be shown."""

    text: str | None
    image: ImageBlock | None = None

    @property
    def block(self) -> TextBlock | ImageBlock | None:
        return self.image or (TextBlock(text=self.text) if self.text else None)


@dataclass(frozen=True, slots=True)
class ResultReader:
    """Turns the answers of one server's tool into results."""

    server: str
    tool: str
    redactor: Redactor
    max_content_size: int
    max_image_bytes: int

    def read(self, answer: "CallToolResult") -> ToolResult:
        parts = [self._part(block) for block in answer.content]
        if not parts:
            return self._without_blocks(answer)
        kept = _cut(parts, self.max_content_size)
        output = "\n".join(part.text for part in kept if part.text is not None)
        content = [block for part in kept if (block := part.block) is not None]
        has_images = any(part.image for part in kept)
        return self._result(answer, output, content if has_images else None)

    def _without_blocks(self, answer: "CallToolResult") -> ToolResult:
        structure = self.redactor.data(json_safe(answer.structured_content))
        text = "" if structure is None else json.dumps(structure, ensure_ascii=False)
        if answer.is_error or len(text) > self.max_content_size:
            return self._result(answer, _cut([_Part(text)], self.max_content_size)[0].text or "", None)
        return ToolResult(output=structure)

    def _result(
        self, answer: "CallToolResult", output: str, content: list[TextBlock | ImageBlock] | None
    ) -> ToolResult:
        if not answer.is_error:
            return ToolResult(output=output, content=content)
        output = output or f"the tool {self.tool} of the server {self.server} failed and did not say why"
        error = {
            "message": output[:_LONGEST_MESSAGE],
            "code": "tool_error",
            "server": self.server,
            "tool": self.tool,
        }
        return ToolResult(success=False, output=output, error=error, content=content)

    def _part(self, block: Any) -> _Part:
        match block.type:
            case "text":
                part = _Part(block.text)
            case "image":
                part = self._image(block.mime_type, block.data)
            case "audio":
                part = _Part(f"[audio: {block.mime_type}, {_size(block.data)} bytes, not shown]")
            case "resource":
                part = self._resource(block.resource)
            case "resource_link":
                words = (block.title or block.name, block.description)
                part = _Part(
                    " ".join([f"[resource link {block.uri}{_in_brackets(block.mime_type)}]", *filter(None, words)])
                )
            case _:
                part = _Part(block.model_dump_json(by_alias=True, exclude_none=True))
        return _Part(self.redactor.text(part.text or ""), part.image)

    def _resource(self, resource: Any) -> _Part:
        text, blob = getattr(resource, "text", None), getattr(resource, "blob", "")
        if text is not None:
            return _Part(f"[resource {resource.uri}{_in_brackets(resource.mime_type)}]\n{text}")
        if (resource.mime_type or "").startswith("image/"):
            return self._image(resource.mime_type, blob)
        place = f"{resource.uri}{_in_brackets(resource.mime_type)}"
        return _Part(f"[resource {place}, {_size(blob)} bytes, binary, not shown]")

    def _image(self, media_type: str, data: str) -> _Part:
        size, reason = _size(data), ""
        if media_type.lower() not in _SHOWN_TYPES:
            reason = "a type that cannot be shown"
        elif size > self.max_image_bytes:
            reason = f"more than {self.max_image_bytes}"
        else:
            try:
                decoded = base64.b64decode(data, validate=True)
                size, reason = len(decoded), "" if decoded else "empty"
            except (binascii.Error, ValueError):
                reason = "not valid base64"
        if reason:
            return _Part(f"[image: {media_type}, {size} bytes, {reason}]")
        source = {"type": "base64", "media_type": media_type.lower(), "data": base64.b64encode(decoded).decode()}
        return _Part(f"[image: {media_type}, {size} bytes]", ImageBlock(source=source))


def _cut(parts: list[_Part], limit: int) -> list[_Part]:
    """Return the parts with no more text than allowed, and a note where it ends; every image stays."""
    total = sum(len(part.text or "") for part in parts) + len(parts) - 1
    if total <= limit:
        return parts
    kept: list[_Part] = []
    shown, is_over = 0, False
    for part in parts:
        text = part.text or ""
        if not is_over and shown + len(text) <= limit:
            kept.append(part)
            shown += len(text) + 1
            continue
        if not is_over:
            is_over = True
            text = _beginning(text, limit - shown)
            note = f"... [truncated: {shown + len(text)} of {total} characters]"
            kept.append(_Part(f"{text}{note}"))
        if part.image is not None:
            kept.append(_Part(None, part.image))
    return kept


def _beginning(text: str, size: int) -> str:
    """Return the beginning of a text, up to a line end when one is near."""
    start = text[: max(size, 0)]
    line_end = start.rfind("\n") + 1
    return start[:line_end] if line_end > len(start) // 2 else start


def _size(data: str) -> int:
    """Return how many bytes base64 text stands for."""
    return len(data) * 3 // 4 - data[-2:].count("=")


def _in_brackets(media_type: str | None) -> str:
    return f" ({media_type})" if media_type else ""
