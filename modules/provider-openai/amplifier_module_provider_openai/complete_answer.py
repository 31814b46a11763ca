"""What a call has led to, the same for both APIs."""

from dataclasses import dataclass, field
from typing import Any

from amplifier_core import Usage


@dataclass(frozen=True, slots=True)
class CompleteAnswer:
    """A complete answer; `fields` are added to the response, `told` to its event, `raw` is what the vendor sent."""

    content: list[Any]
    usage: Usage
    finish_reason: str
    metadata: dict[str, Any] = field(default_factory=dict)
    raw: Any = None
    fields: dict[str, Any] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)
