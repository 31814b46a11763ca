"""What a session may do: one policy, asked by every tool, and the rules it is made from.

`SessionPolicy` is the value that tools ask, `merge_policies` lays the policies of a plan's layers over each other.
"""

from .network_access import NetworkAccess
from .path_access import DeniedBelow, OriginOf, PolicyError, closed_places
from .rules import PolicyRules, default_rules, merge_policies, policy_sections
from .running_places import RunningPlace, find_running_place
from .session_policy import SessionPolicy, default_policy

__all__ = [
    "DeniedBelow",
    "NetworkAccess",
    "OriginOf",
    "PolicyError",
    "PolicyRules",
    "RunningPlace",
    "SessionPolicy",
    "closed_places",
    "default_policy",
    "default_rules",
    "find_running_place",
    "merge_policies",
    "policy_sections",
]
