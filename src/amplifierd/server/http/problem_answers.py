"""Every error becomes a problem document (RFC 9457), from the one table in `amplifierd.problems`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import Match

from amplifier_core.exceptions import AmplifierError
from amplifier_system.near_names import did_you_mean
from amplifierd.problems import PROBLEMS, public_document

MEDIA_TYPE = "application/problem+json"
OPENAI = "/v1/"
"""Below this path errors have OpenAI's shape."""

logger = logging.getLogger(__name__)

_A_MOMENT = {"rate-limit": 1, "not-ready": 1}
"""Seconds after which a retry makes sense if nothing better is known."""

_CODES = {
    404: "not-found",
    405: "method-not-allowed",
    408: "request-timeout",
    413: "payload-too-large",
    415: "unsupported-media-type",
}


def add_problem_answers(app: FastAPI) -> None:
    """Let every expected failure of an endpoint be answered as a problem; the others reach the request guard."""
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    for kind in (AmplifierError, *PROBLEMS):
        app.add_exception_handler(kind, _failed)  # type: ignore[arg-type] # PROBLEMS has only subclasses of Exception


def error_answer(request: Request, error: Exception) -> JSONResponse:
    """Return an error as a response; of one that was not expected only the log tells more."""
    return problem_answer(request, public_document(error))


def problem_answer(request: Request, document: Mapping[str, Any]) -> JSONResponse:
    """Return a problem as a response; it says which request it was."""
    data = {**document, "instance": request.url.path, "request_id": getattr(request.state, "request_id", None)}
    headers = {"WWW-Authenticate": "Bearer"} if data["status"] == 401 else {}
    if (seconds := data.get("retry_after_seconds", _A_MOMENT.get(data["code"]))) is not None:
        headers["Retry-After"] = str(max(1, round(seconds)))
    if request.url.path.startswith(OPENAI):
        return JSONResponse(openai_error(data), status_code=openai_status(data["status"]), headers=headers)
    return JSONResponse(data, status_code=data["status"], headers=headers, media_type=MEDIA_TYPE)


def plain_problem(status: int, code: str, detail: str, **more: Any) -> dict[str, Any]:
    """Return the document of a problem that no exception stands for."""
    document = {"type": f"urn:amplifier:error:{code}", "title": code.replace("-", " "), "status": status}
    return {**document, "detail": detail, "code": code, "retryable": False, **more}


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    errors = [{"loc": [*one["loc"]], "msg": one["msg"], "type": one["type"]} for one in error.errors()]
    if any(one["type"] == "json_invalid" for one in errors):
        return problem_answer(request, plain_problem(400, "malformed-request", "the body is not JSON", errors=errors))
    is_extra = all(one["type"] == "extra_forbidden" for one in errors)
    code = "extra-field" if is_extra else "validation-error"
    detail = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in errors)
    hint = _meant(request, errors)
    more = {"hint": hint} if hint else {}
    return problem_answer(request, plain_problem(422, code, detail, errors=errors, **more))


def _meant(request: Request, errors: Sequence[Mapping[str, Any]]) -> str:
    """Return which fields were probably meant by those that a body does not have, empty where none is like them."""
    body = getattr(request.scope.get("route"), "body_field", None)
    kinds = [body.field_info.annotation, *get_args(body.field_info.annotation)] if body is not None else []
    known = [name for kind in kinds for name in getattr(kind, "model_fields", ())]
    extra = [str(one["loc"][1]) for one in errors if one["type"] == "extra_forbidden" and len(one["loc"]) == 2]
    return "; ".join(f"{name}: {meant}" for name in extra if (meant := did_you_mean(name, known)))


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return refusal_answer(request, error)


def refusal_answer(request: Request, error: HTTPException) -> JSONResponse:
    """Return a refusal of the web framework as a response."""
    code = _CODES.get(error.status_code, "invalid-request")
    answer = problem_answer(request, plain_problem(error.status_code, code, str(error.detail)))
    answer.headers.update(error.headers or {})
    if error.status_code == 405:
        answer.headers["Allow"] = ", ".join(_allowed(request))
    return answer


def _allowed(request: Request) -> list[str]:
    """Return the methods that a path is asked with; each of them may have a route of its own."""
    fitting = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return sorted({method for route in fitting for method in getattr(route, "methods", None) or ()})


async def _failed(request: Request, error: Exception) -> JSONResponse:
    answer = error_answer(request, error)
    if answer.status_code == 500:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return answer


# Problems in the shape of OpenAI's errors.


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
