"""The policy of a session: what its plan says, over the defaults, with this home's own places closed.

The runtime registers it as the capability `session.policy`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from amplifier_core.mount_plan import MountPlan
from amplifier_system.policy import PolicyRules, SessionPolicy, merge_policies, policy_sections
from amplifierd.exceptions import MountPlanError, ProfileCompilationError
from amplifierd.issues import Issue
from amplifierd.paths import Paths
from amplifierd.profiles.builds.build import Build
from amplifierd.profiles.builds.origins import POLICY, origin_at
from amplifierd.profiles.documents.inheritance import DEFAULTS

from .request import REQUEST

logger = logging.getLogger(__name__)

_Sections = Mapping[str, Mapping[str, Sequence[str]]]


def session_policy_for(
    plan: Mapping[str, Any],
    *,
    paths: Paths,
    working_dir: Path,
    build: Build | None = None,
    workspace: Path | None = None,
) -> SessionPolicy:
    """Return the policy of a session that runs a plan of either form, as it was planned: overrides included.

    No session reads anything of the home but what is generated in it, `share` and `cache`, and its own `workspace`;
    none writes to what later sessions run and trust: configuration, compiled profiles, sources, state. A plan takes a
    place back as it does any other, by allowing it by its very name.

    `build` is what the plan was made from; refusals name the profile and the line that it has the rule from.

    Raises:
        MountPlanError: `session.policy` is not a policy.
    """
    written = MountPlan(plan).session.get("policy")
    try:
        rules = PolicyRules.parse(merge_policies(_home_rules(paths, working_dir), written, may_widen=True))
    except ValueError as error:
        raise _unusable(error) from error
    origins = _Origins(rules, policy_sections(written), build)
    policy = SessionPolicy.of(rules, working_dir=working_dir, origin_of=origins)
    taken_back = [place for place in _closed(paths) if str(place) not in policy.read.denied]
    return policy.opening(paths.share, paths.cache, *taken_back, *([workspace] if workspace else []))


def narrowed_plan(plan: Mapping[str, Any], *, paths: Paths, working_dir: Path) -> dict[str, Any]:
    """Return a plan from a request or a file with a policy that allows nothing beyond the defaults.

    What it denies stays. Only the home's own files can allow more.

    Raises:
        MountPlanError: `session.policy` is not a policy.
    """
    session = MountPlan(plan).session
    written = session.get("policy")
    if not written:
        return dict(plan)
    try:
        merged = merge_policies(_home_rules(paths, working_dir), written, may_widen=False)
        own = policy_sections(written)
    except ValueError as error:
        raise _unusable(error) from error
    policy = {name: {key: value for key, value in merged.get(name, {}).items() if key != "deny"} for name in own}
    for name, lists in own.items():
        policy[name] |= {"deny": list(lists["deny"])} if "deny" in lists else {}
    return {**plan, "session": {**session, "policy": policy}}


def _unusable(error: ValueError) -> MountPlanError:
    issue = Issue("policy-invalid", str(error), "session.policy")
    return MountPlanError(f"The mount plan cannot be used: session.{error}", [issue])


def _home_rules(paths: Paths, working_dir: Path) -> dict[str, Any]:
    """Return the rules that close a home: whole, so that whatever comes to lie in it is closed as well."""
    closed = [str(place) for place in (*_closed(paths), *paths.secrets)]
    is_inside = Path(os.path.realpath(working_dir)).is_relative_to(os.path.realpath(paths.home))
    return {
        "read": {"deny": [*closed, *([] if is_inside else [str(paths.home)])]},
        "write": {"deny": [*closed, str(paths.share), str(paths.cache)]},
    }


def _closed(paths: Paths) -> tuple[Path, ...]:
    return paths.config, paths.state, paths.logs


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
