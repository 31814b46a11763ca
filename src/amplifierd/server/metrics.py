"""What the daemon counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TOKENS = ("input", "output", "cache_read", "cache_write")


class Metrics:
    """The counters of one daemon; what can be read off it at any time is asked for when it is shown."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Histogram(
            "amplifierd_request_seconds",
            "How long requests took, streams left out",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._turns = Counter("amplifierd_turns", "Turns that ended", ["status"], registry=self._registry)
        self._tokens = Counter("amplifierd_tokens", "Tokens that turns used", ["kind"], registry=self._registry)
        self._forwarded = Counter(
            "amplifierd_forwarded_requests", "Requests sent on to other members", ["outcome"], registry=self._registry
        )
        self._operations = Histogram(
            "amplifierd_operation_seconds", "How long operations took", ["kind", "status"], registry=self._registry
        )

    def count_request(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Take note of an answer; requests that no route takes count together, whatever they asked for."""
        known = (method, route) if route is not None else ("", "")
        self._requests.labels(*known, status).observe(seconds)

    def count_turn(self, done: Mapping[str, Any]) -> None:
        """Take note of what a turn came to, with what it and its agents used."""
        self._turns.labels(done["status"]).inc()
        tokens = (done.get("usage") or {}).get("tokens") or {}
        for kind in _TOKENS:
            self._tokens.labels(kind).inc(tokens.get(kind) or 0)

    def count_operation(self, operation: Mapping[str, Any]) -> None:
        """Take note of an operation; one that goes on is counted when it is over."""
        if operation["finished_at"] is not None:
            took = datetime.fromisoformat(operation["finished_at"]) - datetime.fromisoformat(operation["created_at"])
            self._operations.labels(operation["kind"], operation["status"]).observe(took.total_seconds())

    def count_forwarded(self, outcome: str) -> None:
        """Take note of a request that was sent on to another member: `answered`, or `lost` on the way."""
        self._forwarded.labels(outcome).inc()

    def gauge(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Show a current value, read on request."""
        Gauge(f"amplifierd_{name}", meaning, registry=self._registry).set_function(read)

    def text(self) -> bytes:
        """Return everything as Prometheus reads it."""
        return generate_latest(self._registry)
