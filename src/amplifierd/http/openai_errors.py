"""Problems in the shape of OpenAI's errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel


class OpenAIProblem(BaseModel):
    """What went wrong, in OpenAI's words; `code` is that of our problem documents."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(BaseModel):
    """An error as OpenAI's clients read it."""

    error: OpenAIProblem


def openai_status(status: int) -> int:
    """Return the status that OpenAI answers a problem with."""
    return 400 if status == 422 else status


def openai_error(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a problem in the shape of OpenAI's errors."""
    kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
    status = int(document["status"])
    kind = kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
    errors = document.get("errors") or [{}]
    place = () if document["code"] == "malformed-request" else (errors[0].get("loc") or ())[1:]
    param = ".".join(map(str, place)) or None
    return {"error": {"message": document["detail"], "type": kind, "param": param, "code": document["code"]}}
