"""The hosts of a call: which ones it would reach, and whether anybody has to be asked about them."""

from collections.abc import Iterator, Mapping
from typing import Any

from amplifier_kit.concerns import Concern, concerns_of, host_and_port
from amplifier_kit.mounting import working_dir
from amplifier_kit.policy import PolicyError, session_policy
from amplifier_kit.tools.effects import EXECUTE, NETWORK

from .ledger import Ledger, is_of_mcp
from .verdict import GuardedCall, Verdict

_URL_KEYS = ("url", "uri", "href", "link", "endpoint", "address")
_HOST_KEYS = ("host", "hostname", "domain", "server")


def concerns_of_call(call: GuardedCall) -> tuple[Concern, ...]:
    """Return what a call touches: what its tool says, else the hosts in the input of a tool that uses the network.

    A tool that can run anything is asked about as such, and the servers of MCP tools are named in the configuration.
    """
    if callable(getattr(call.tool, "concerns_of", None)):
        return concerns_of(call.tool, call.tool_input)
    if NETWORK not in call.effects or EXECUTE in call.effects or is_of_mcp(call.tool, call.identity):
        return ()
    found = {concern.subject: concern for concern in _hosts_in(call)}
    return tuple(found.values()) or (_unknown_host_of(call),)


def judge_host(concern: Concern, ledger: Ledger, coordinator: Any) -> Verdict | None:
    """Return what policy and ledger say about a host that nobody has agreed to; None leaves it to a person."""
    network = session_policy(coordinator, working_dir(coordinator)).network
    host = concern.subject.rpartition(":")[0] or concern.subject
    if concern.detail:
        try:
            network.check(concern.detail)
        except PolicyError as exc:
            return Verdict(False, str(exc), "rule")
    if network.is_named(host.strip("[]")):
        return Verdict(True, "Its host is named in policy.network.allow", "rule")
    if concern.detail and ledger.may_read(concern.detail, concern.subject):
        return Verdict(True, "Its address was given to the session", "rule")
    return None


def _unknown_host_of(call: GuardedCall) -> Concern:
    return Concern("host", f"{call.identity}, host unknown", f"{call.tool_name} reaches the network, host unknown")


def _hosts_in(call: GuardedCall) -> Iterator[Concern]:
    """Yield the hosts that the input of a tool names; only one that sends nothing but the address reads it."""
    sends_more = any(
        key not in _URL_KEYS and not isinstance(value, bool | int | float | None)
        for key, value in call.tool_input.items()
    )
    for url in _urls_in(call.tool_input):
        subject = host_and_port(url)
        if subject is not None:
            words = f"{call.tool_name} reaches {subject}"
            yield Concern("host", subject, f"{words} ({url})") if sends_more else Concern("host", subject, words, url)


def _urls_in(value: Any, key: str = "", depth: int = 5) -> Iterator[str]:
    if isinstance(value, str):
        text = value.strip()
        if text.lower().startswith(("http://", "https://", "ws://", "wss://", "ftp://")):
            yield text
        elif key in _HOST_KEYS or (key in _URL_KEYS and "." in text):
            yield f"https://{text}"
    elif depth and isinstance(value, Mapping):
        for name, item in value.items():
            yield from _urls_in(item, str(name).lower(), depth - 1)
    elif depth and isinstance(value, list | tuple):
        for item in value:
            yield from _urls_in(item, key, depth - 1)
