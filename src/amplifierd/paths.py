"""Where everything of a home lies: read once from the environment, then passed on as a value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from amplifier_sessions.session_directory import INDEX, SESSIONS
from amplifier_system.homes import PREFIX, daemon_directory, daemon_home, daemon_state

from .exceptions import SettingsError
from .identifiers import ProfileId


@dataclass(frozen=True, slots=True)
class Paths:
    """The directories of one home, all absolute; none is created before something is written into it."""

    home: Path
    config: Path
    share: Path
    cache: Path
    state: Path
    logs: Path

    @classmethod
    def from_environment(cls, home: Path | str | None = None, environ: Mapping[str, str] | None = None) -> Paths:
        """Return the directories that `AMPLIFIERD_HOME` and `AMPLIFIERD_{CONFIG,SHARE,CACHE,STATE,LOG}_DIR` name.

        `home` stands for `AMPLIFIERD_HOME`. A relative path counts from the working directory of this moment.

        Raises:
            SettingsError: a file is where a directory should be, or profiles would be generated where people write
                theirs.
        """
        environ = os.environ if environ is None else environ
        root = _checked("HOME", daemon_home(home, environ))

        def subtree(name: str, default: Path) -> Path:
            return _checked(f"{name}_DIR", daemon_directory(name, default, environ))

        state = _checked("STATE_DIR", daemon_state(home, environ))
        paths = cls(
            home=root,
            config=subtree("CONFIG", root / "config"),
            share=subtree("SHARE", root / "share"),
            cache=subtree("CACHE", root / "cache"),
            state=state,
            logs=subtree("LOG", state / "logs" / "amplifierd"),
        )
        _check_apart(paths.own_profiles, paths.profiles)
        return paths

    @property
    def settings_file(self) -> Path:
        return self.config / "daemon.yaml"

    @property
    def secrets_file(self) -> Path:
        return self.config / "secrets.yaml"

    @property
    def trust_file(self) -> Path:
        return self.config / "trust.json"

    @property
    def approvals_file(self) -> Path:
        return self.config / "approvals.yaml"

    @property
    def agreements_file(self) -> Path:
        return self.config / "agreements.yaml"

    @property
    def token_file(self) -> Path:
        return self.config / "token"

    @property
    def tokens_file(self) -> Path:
        return self.config / "tokens.json"

    @property
    def cluster_token_file(self) -> Path:
        return self.config / "cluster_token"

    @property
    def certs(self) -> Path:
        return self.config / "certs"

    @property
    def secrets(self) -> tuple[Path, ...]:
        """What stays closed to sessions even where a rule opens the directory around it."""
        tokens = (self.token_file, self.tokens_file, self.cluster_token_file, self.logins_file)
        return (self.secrets_file, self.settings_file, self.trust_file, *tokens, self.certs, self.config / "keys")

    @property
    def overlays(self) -> Path:
        return self.config / "overlays"

    @property
    def own_profiles(self) -> Path:
        """The user's own profiles, as they are written: collection `local`."""
        return self.config / "profiles"

    @property
    def collections_file(self) -> Path:
        return self.share / "collections.yaml"

    @property
    def collections_lock(self) -> Path:
        return self.share / "collections.lock"

    @property
    def profiles(self) -> Path:
        return self.share / "profiles"

    @property
    def locks(self) -> Path:
        return self.cache / "locks"

    @property
    def sessions(self) -> Path:
        return self.state / SESSIONS

    @property
    def workspaces(self) -> Path:
        """What modules and checkpoints keep of sessions that are not in files themselves."""
        return self.state / "workspaces"

    @property
    def index_file(self) -> Path:
        return self.state / INDEX

    @property
    def bundles_file(self) -> Path:
        return self.state / "registry.json"

    @property
    def active_profile_file(self) -> Path:
        return self.state / "active_profile"

    @property
    def idempotency(self) -> Path:
        return self.state / "idempotency"

    @property
    def operations_file(self) -> Path:
        return self.state / "operations.jsonl"

    @property
    def follow_ups(self) -> Path:
        """What is to follow turns that were interrupted."""
        return self.state / "follow_ups.json"

    @property
    def logins_file(self) -> Path:
        return self.state / "logins.json"

    @property
    def audit_file(self) -> Path:
        return self.logs / "audit.jsonl"

    @property
    def run(self) -> Path:
        return self.state / "run"

    def profile_dir(self, profile_id: ProfileId | str) -> Path:
        """Return where a profile is published.

        Raises:
            ValueError: it is not the id of a profile.
        """
        known = ProfileId.parse(profile_id)
        return self.profiles / known.collection / known.name

    def profile_file(self, profile_id: ProfileId | str) -> Path:
        """Return the profile's text as it was extracted."""
        return self.profile_dir(profile_id) / "profile.md"

    def overlay_file(self, profile_id: ProfileId | str) -> Path:
        """Return what the user changes about a profile."""
        known = ProfileId.parse(profile_id)
        return self.overlays / known.collection / f"{known.name}.md"


def _check_apart(written: Path, generated: Path) -> None:
    """Refuse directories of which one lies in the other: what is generated replaces and removes what is there."""
    ways = [Path(os.path.realpath(path)) for path in (written, generated)]
    if ways[0].is_relative_to(ways[1]) or ways[1].is_relative_to(ways[0]):
        message = f"{PREFIX}SHARE_DIR: profiles would be generated in {generated}, and you write yours in {written}"
        raise SettingsError(message, hint=f"let {PREFIX}CONFIG_DIR and {PREFIX}SHARE_DIR name separate directories")


def _checked(name: str, found: Path) -> Path:
    nearest = next(parent for parent in (found, *found.parents) if parent.exists())
    if not nearest.is_dir():
        raise SettingsError(f"{PREFIX}{name}: {nearest} is not a directory", hint="move the file, or name another path")
    return found
