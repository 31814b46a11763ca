"""The policy of a composed session: a bundle can narrow what it is laid over, and the defaults, never widen them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from amplifier_foundation.exceptions import BundleLoadError
from amplifier_system.policy import merge_policies

if TYPE_CHECKING:
    from .model import Bundle


def with_policy(merged: dict[str, Any], base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a merged `session` section with the policy of its two parts.

    Raises:
        BundleLoadError: one of them is not a policy.
    """
    if "policy" not in base and "policy" not in layer:
        return merged
    try:
        return {**merged, "policy": merge_policies(base.get("policy"), layer.get("policy"), may_widen=False)}
    except ValueError as exc:
        raise BundleLoadError(f"session.{exc}") from exc


def origin_of_rule(bundle: Bundle, key: str, entry: str) -> str:
    """Say which bundle brought an entry of a list of the policy, or the list, `read.deny`; empty when none did."""
    path = f"session.policy.{key}[{entry}]" if entry else f"session.policy.{key}"
    try:
        origin = bundle.explain(path)["origin"]
    except KeyError:
        return ""
    if not origin["bundle"]:
        return ""
    return f"{origin['bundle']} line {origin['line']}" if origin["line"] else str(origin["bundle"])
