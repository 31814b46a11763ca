"""Answers as JSON that every client can read."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse

from amplifierd.session_store.json_lines import encoded_for_others


class JsonAnswer(JSONResponse):
    """What endpoints answer with. Half of a character in one text, as models and tools write it, hides no answer."""

    def render(self, content: Any) -> bytes:
        return encoded_for_others(content)
