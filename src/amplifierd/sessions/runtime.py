"""What every session of a home runs on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from amplifierd.agreements import Agreements
from amplifierd.paths import Paths
from amplifierd.plans.foreign_values import ForeignValues
from amplifierd.plans.injection import variables
from amplifierd.session_store.protocol import Holder, SessionStore
from amplifierd.settings import Settings

from .announcements import Announcements
from .equipment import Equipment, Outfitter
from .loaded_sessions import LoadedSessions
from .secret_values import SecretValues
from .stoppable_tools import Patience
from .working_place import Machine


@dataclass(frozen=True)
class Runtime:
    """The parts that runners share; `find_key` gives the stored key of a provider module, or a kept secret."""

    store: SessionStore
    holder: Holder
    paths: Paths
    settings: Settings
    outfitter: Outfitter
    environment: dict[str, str]
    find_key: Callable[[str], str | None]
    secrets: SecretValues
    announcements: Announcements
    machine: Machine
    loaded: LoadedSessions
    patience: Patience = field(default_factory=Patience)

    def foreign_values(self, equipment: Equipment) -> ForeignValues:
        """Return what decides about the parts of a session's plan that come from elsewhere."""
        find = variables(self.environment, self.find_key)
        return ForeignValues(
            equipment.place_of, Agreements(self.paths), find, self.find_key, resolver=equipment.resolver
        )

    def learn(self, variables: Mapping[str, str]) -> None:
        """Take in secret variables of the environment that a plan needs; none of their values is stored."""
        self.environment.update(variables)
        self.secrets.add(*variables.values())
