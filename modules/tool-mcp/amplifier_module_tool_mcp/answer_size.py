"""How much of a server's answer is taken at all, before the SDK makes objects of it."""

from typing import Any

MAX_BLOCKS = 10_000
MAX_TEXT_CHARS = 10 << 20


def cut_answer(result: Any) -> None:
    """Leave out what is too much in the answer to a call, and say so in a block of its own; others stay as they are."""
    content = result.get("content") if isinstance(result, dict) else None
    if not isinstance(content, list):
        return
    total = len(content)
    room = MAX_TEXT_CHARS
    for index, block in enumerate(content):
        room -= _size(block)
        if room < 0 or index >= MAX_BLOCKS:
            kept = content[:index]
            note = f"[cut: {index} of {total} blocks of the answer are shown; the rest is too much]"
            if not kept and isinstance(block, dict) and isinstance(block.get("text"), str):
                kept = [{**block, "text": block["text"][:MAX_TEXT_CHARS]}]
                note = f"[cut: the first {MAX_TEXT_CHARS} characters of the answer are shown]"
            result["content"] = [*kept, {"type": "text", "text": note}]
            return


def _size(block: Any) -> int:
    """Return how many characters of text a block has, wherever it has them."""
    if not isinstance(block, dict):
        return 0
    resource = block.get("resource")
    texts = (block.get("text"), resource.get("text") if isinstance(resource, dict) else None)
    return sum(len(text) for text in texts if isinstance(text, str))
