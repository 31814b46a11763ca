"""What a session may do: one policy, asked by every tool, and the rules it is made from.

`SessionPolicy` is the value that tools ask, `merge_policies` lays the policies of a plan's layers over each other.
"""

from .exceptions import PolicyError
from .path_access import DeniedBelow, OriginOf
from .places import home_secrets
from .rules import PolicyRules, default_rules, merge_policies, policy_sections
from .session_policy import SessionPolicy, default_policy

__all__ = [
    "DeniedBelow",
    "OriginOf",
    "PolicyError",
    "PolicyRules",
    "SessionPolicy",
    "default_policy",
    "default_rules",
    "home_secrets",
    "merge_policies",
    "policy_sections",
]
