"""The policy of a session: what its plan says, over the defaults, with this home's own places closed.

The runtime registers it as the capability `session.policy`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from amplifier_core.mount_plan import MountPlan
from amplifier_system.policy import PolicyRules, SessionPolicy, home_secrets, merge_policies, policy_sections
from amplifierd.builds.build import Build
from amplifierd.builds.origins import POLICY, origin_at
from amplifierd.documents.inheritance import DEFAULTS
from amplifierd.exceptions import MountPlanError, ProfileCompilationError
from amplifierd.issues import Issue
from amplifierd.paths import Paths

from .request import REQUEST

logger = logging.getLogger(__name__)

_Sections = Mapping[str, Mapping[str, Sequence[str]]]


def session_policy_for(
    plan: Mapping[str, Any], *, paths: Paths, working_dir: Path, build: Build | None = None
) -> SessionPolicy:
    """Return the policy of a session that runs a plan of either form, as it was planned: overrides included.

    No session reads the home's secrets, and none writes to what later sessions run and trust: configuration, compiled
    profiles, sources, state. A plan takes a place back as it does any other, by allowing it by its very name.

    `build` is what the plan was made from; refusals name the profile and the line that it has the rule from.

    Raises:
        MountPlanError: `session.policy` is not a policy.
    """
    written = MountPlan(plan).session.get("policy")
    try:
        rules = PolicyRules.parse(merge_policies(_home_rules(paths), written, may_widen=True))
    except ValueError as error:
        issue = Issue("policy-invalid", str(error), "session.policy")
        raise MountPlanError(f"The mount plan cannot be used: session.{error}", [issue]) from error
    return SessionPolicy.of(rules, working_dir=working_dir, origin_of=_Origins(rules, policy_sections(written), build))


def _home_rules(paths: Paths) -> dict[str, Any]:
    secrets = list(home_secrets(paths.config))
    own = [str(place) for place in (paths.config, paths.share, paths.cache, paths.state)]
    return {"read": {"deny": secrets}, "write": {"deny": [*secrets, *own]}}


class _Origins:
    """Says where rules are written; `rules` are all, `written` the plan's. The build is read when it is asked about."""

    def __init__(self, rules: PolicyRules, written: _Sections, build: Build | None) -> None:
        self._rules, self._written, self._build = rules, written, build

    def __call__(self, key: str, entry: str) -> str:
        section, _, name = key.partition(".")
        listed = self._written.get(section, {}).get(name)
        if listed is None or (entry and entry not in listed):
            return DEFAULTS if not entry or entry in getattr(self._rules, section).deny else ""
        before, origins = self._of_build
        listed_before = before.get(section, {}).get(name, ())
        if entry not in listed_before if entry else listed != listed_before:
            return REQUEST if self._build else ""
        steps = (*POLICY, section, name, entry)
        return _shown(origin_at(origins, steps if entry else steps[:-1])["origin"])

    @cached_property
    def _of_build(self) -> tuple[_Sections, Mapping[str, Any]]:
        """The policy as it was compiled, and where its parts come from; nothing where that cannot be read any more."""
        try:
            if self._build is not None:
                policy = MountPlan(self._build.plan()).session.get("policy")
                return policy_sections(policy), self._build.origins()
        except ProfileCompilationError:
            logger.debug("the origins of build %s are not known", self._build, exc_info=True)
        return {}, {}


def _shown(origin: Mapping[str, Any]) -> str:
    profile, file, line = origin["profile"], origin["file"], origin["line"]
    owner = f"overlay of {profile}" if str(file).startswith("config/overlays/") else str(profile)
    return f"{owner} line {line}" if line else owner
