"""The hosts that a command may reach."""

import re
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from amplifier_kit.concerns import Concern, is_tainted, refusal_of
from amplifier_kit.policy import NetworkAccess, PolicyError, canonical_host
from amplifier_kit.sandbox.proxy import HostProxy

_URL = re.compile(r"\b(?:https?|git|ftp|wss?)://[^\s'\"<>|;&()`\\\\]+", re.IGNORECASE)
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class CommandReach:
    """What one command may reach: hosts that the policy or the command itself names, and those a person agrees to."""

    command: str
    named: frozenset[str]
    network: NetworkAccess
    coordinator: Any

    @classmethod
    def of(cls, command: str, network: NetworkAccess, coordinator: Any) -> Self:
        """Return the reach of a command that a person agreed to, and so to the hosts in it.

        In a tainted session only the policy names hosts.
        """
        named = frozenset() if is_tainted(coordinator) else frozenset(hosts_in(command))
        return cls(command, named, network, coordinator)

    def proxy(self) -> HostProxy:
        """Return a proxy for the command; what it opens is closed by `abandon`, or when the command has ended."""
        return HostProxy(self._refusal, self.network.refuses_address)

    async def _refusal(self, host: str, port: int, url: str) -> str | None:
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self.network.check(f"https://{authority}/")
        except PolicyError as exc:
            return str(exc)
        if host in self.named or self.network.is_named(host):
            return None
        shown = self.command if len(self.command) <= _SHOWN_CHARACTERS else f"{self.command[:_SHOWN_CHARACTERS]}…"
        words = f"the command {shown!r} reaches {authority} ({url})"
        return await refusal_of(self.coordinator, Concern("host", authority, words), "bash")


def hosts_in(command: str) -> set[str]:
    """Return the hosts of the URLs in a command."""
    hosts = set()
    for url in _URL.findall(command):
        try:
            hosts.add(canonical_host(urlsplit(url).hostname or ""))
        except ValueError:
            continue
    return hosts
