"""What the daemon counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The counters of one daemon; what can be read off it at any time is asked for when it is shown."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Histogram(
            "amplifierd_request_seconds",
            "How long requests took, streams left out",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self.turns = Counter("amplifierd_turns", "Turns that ended", ["status"], registry=self._registry)
        self.tokens = Counter("amplifierd_tokens", "Tokens that turns used", ["kind"], registry=self._registry)
        self.work = Histogram(
            "amplifierd_operation_seconds", "How long operations took", ["kind", "status"], registry=self._registry
        )

    def gauge(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Show a value of the moment, read when somebody asks."""
        Gauge(f"amplifierd_{name}", meaning, registry=self._registry).set_function(read)

    def text(self) -> bytes:
        """Return everything as Prometheus reads it."""
        return generate_latest(self._registry)
