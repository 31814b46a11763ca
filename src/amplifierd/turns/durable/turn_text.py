"""What is asked of a turn, and what came of it, as the text that its row has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from amplifierd.live_sessions import TurnRequest
from amplifierd.session_store.postgres.stored_text import json_text, parsed
from amplifierd.sessions.client_turns import ClientTurn
from amplifierd.workers.error_transfer import described_error, error_of

REFUSED = "refused"
"""With what the text begins that says why a turn was not run."""


def request_text(turn: TurnRequest) -> str:
    return json_text(asdict(turn))


def request_of(text: str) -> TurnRequest:
    """Return what was asked; what a newer version knows beside it is left out."""
    known = {name: value for name, value in parsed(text).items() if name in TurnRequest.__dataclass_fields__}
    client = known.pop("client", None)
    return TurnRequest(**known, client=ClientTurn(**client) if client is not None else None)


def result_text(result: Mapping[str, Any]) -> str:
    return json_text({"result": result})


def error_text(error: Exception) -> str:
    return json_text({"error": described_error(error)})


def refusal_text(error: Exception) -> str:
    return json_text({REFUSED: True, "error": described_error(error)})


def refusal_of(text: str) -> Exception:
    """Return what refused a turn."""
    return error_of(parsed(text)["error"])


def result_of(text: str) -> dict[str, Any]:
    """Return what came of a turn.

    Raises what refused the turn, or ended it before it began.
    """
    outcome = parsed(text)
    if (error := outcome.get("error")) is not None:
        raise error_of(error)
    result: dict[str, Any] = outcome["result"]
    return result
