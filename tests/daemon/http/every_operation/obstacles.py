"""What stands in the way of operations: by the word of the problem, those that answer with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from api_operations import API, Operation

SESSION = f"{API}/sessions/{{session_id}}"
PROFILE = f"{API}/profiles/{{profile_id}}"
COLLECTION = f"{API}/collections/{{collection_id}}"
TRASHED = f"{API}/sessions/trash/{{session_id}}"
COMPLETIONS = "POST /v1/chat/completions"


def _of_session(*operations: str) -> tuple[str, ...]:
    """Return operations by what they are called below a session."""
    return tuple(f"{method} {SESSION}{below}" for method, _, below in (each.partition(" ") for each in operations))


LOADING = _of_session(
    *("POST /execute", "POST /execute/stream", "POST /steer", "DELETE /queue/{position}"),
    *("POST /resume", "POST /approvals/{request_id}", "POST /compact", "POST /change-agent"),
    *("GET /modules", "GET /tools", "GET /hooks", "GET /capabilities", "GET /agents"),
    *("GET /routing", "GET /mode", "POST /mode", "GET /skills"),
)
"""Operations that load the modules of a session, in whatever state it is."""

_CHANGING = _of_session("PATCH ", "DELETE ", "POST /messages", "DELETE /messages/last", "POST /truncate", "POST /undo")
_ASKED_FOR_PLAN = ("GET /mount-plan", "GET /config", "GET /explain", "POST /clone", "POST /replay")

_BELOW_PROFILES = (("POST", "copy"), ("POST", "compile"), ("GET", "status"), ("GET", "lock"))
_MODULE_TYPES = ("orchestrators", "contexts", "providers", "tools", "hooks")

NEWER = "format-unsupported"
"""What every operation of a session says whose record a newer version wrote."""

OBSTACLES: Mapping[str, Sequence[str]] = {
    "session-held": (*LOADING, *_CHANGING, *_of_session("POST /change-profile")),
    "mount-plan-missing": (*LOADING, *_of_session(*_ASKED_FOR_PLAN)),
    "execution-in-progress": (
        *_of_session("POST /execute", "POST /execute/stream", "DELETE ", "POST /messages", "DELETE /messages/last"),
        *_of_session("POST /truncate", "POST /compact", "POST /undo", "PATCH "),
        COMPLETIONS,
    ),
    "session-state-conflict": (
        *_of_session("POST /execute", "POST /execute/stream", "POST /start", "PATCH ", "POST /change-profile"),
        *_of_session("POST /change-agent", "GET /changes", "POST /undo", "POST /mode"),
        *(f"POST {API}/sessions", f"POST {TRASHED}/restore"),
    ),
    "session-already-exists": (f"POST {API}/sessions", f"POST {TRASHED}/restore"),
    "nothing-to-steer": _of_session("POST /steer", "DELETE /queue/{position}"),
    "steering-unsupported": _of_session("POST /steer"),
    "approval-already-resolved": _of_session("POST /approvals/{request_id}"),
    "budget-exhausted": _of_session("POST /execute"),
    "not-ready": (f"POST {API}/sessions",),
    "ambiguous-profile": (
        f"PUT {API}/profiles/active",
        *(f"{method} {PROFILE}" for method in ("GET", "PUT", "PATCH", "DELETE")),
        *(f"{method} {PROFILE}/{below}" for method, below in _BELOW_PROFILES),
        *(f"GET {API}/modules{below}" for below in ("", "/{module_id}", *map("/{}".format, _MODULE_TYPES))),
    ),
    "profile-exists": (f"POST {API}/profiles", f"POST {PROFILE}/copy"),
    "profile-changed": (f"PUT {PROFILE}",),
    "profile-in-use": (f"DELETE {PROFILE}",),
    "collection-exists": (f"POST {API}/collections",),
    "collection-in-use": (f"DELETE {COLLECTION}",),
    "collections-file-invalid": (f"POST {API}/collections", f"PATCH {COLLECTION}", f"DELETE {COLLECTION}"),
    "bundle-exists": (f"POST {API}/bundles",),
    "bundle-in-use": (f"DELETE {API}/bundles/{{name}}",),
    NEWER: (
        *(f"GET {API}/{below}" for below in ("events", "status", "collections", "profiles", "cache/status")),
        *(f"{method} {COLLECTION}" for method in ("GET", "PATCH")),
        *("GET /v1/models", "GET /v1/models/{model}"),
    ),
    "token-exists": (f"POST {API}/tokens",),
    "operation-finished": (f"DELETE {API}/operations/{{operation_id}}",),
}
"""Every operation is seen to answer with exactly these words, beside those that `words_of` adds."""


def words_of(operation: Operation) -> set[str]:
    """Return what may stand in the way of an operation."""
    words = {word for word, operations in OBSTACLES.items() if operation.name in operations}
    if operation.takes_key:
        words.add("idempotency-conflict")
    if operation.path.startswith(SESSION):
        words.add(NEWER)
    return words
