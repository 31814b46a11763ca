"""The policy of a composed session: a bundle can narrow what it is laid over, and the defaults, never widen them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amplifier_foundation.exceptions import BundleLoadError
from amplifier_system.policy import merge_policies


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
