"""Messages and events as rows: what is stored of each, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amplifierd.session_store.protocol import Message, StoredEvent

from .stored_text import column_text, event_number, json_text, said_in

MESSAGE_COLUMNS = "message_id, body, said"
NEW_MESSAGES = f"""
unnest(%(ids)s::text[], %(messages)s::text[], %(said)s::text[]) WITH ORDINALITY AS new ({MESSAGE_COLUMNS}, number)
"""
EVENT_COLUMNS = "seq, name, body"
NEW_EVENTS = f"""
unnest(%(seqs)s::bigint[], %(names)s::text[], %(events)s::text[]) WITH ORDINALITY AS new ({EVENT_COLUMNS}, number)
"""


def message_values(messages: Sequence[Message]) -> dict[str, list[Any]]:
    """Return the columns of messages.

    Raises:
        ValueError: there is something in one that JSON cannot say.
    """
    return {
        "ids": [column_text(message.get("id")) for message in messages],
        "messages": [json_text(message) for message in messages],
        "said": [said_in(message) for message in messages],
    }


def event_values(events: Sequence[StoredEvent]) -> dict[str, list[Any]]:
    """Return the columns of events, and raise what `message_values` raises."""
    return {
        "seqs": [event_number(event) for event in events],
        "names": [column_text(event.get("event")) or "" for event in events],
        "events": [json_text(event) for event in events],
    }
