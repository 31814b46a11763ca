"""What a session runs with, by where it came from: a compiled profile, a bundle, or a plan of its own."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from amplifier_core import AmplifierSession
from amplifier_system.urls import shown
from amplifierd.exceptions import SessionStateError
from amplifierd.identifiers import OWNERS_OF_THE_HOME, ProfileId
from amplifierd.paths import Paths
from amplifierd.plans.foreign_values import FindPlace, OfBuild, OfBundle, OfPlan, own_place, requested_place
from amplifierd.profiles.builds.build import Build
from amplifierd.profiles.builds.home_profiles import Profiles
from amplifierd.profiles.builds.module_resolver import DaemonModuleSourceResolver
from amplifierd.profiles.builds.resources import REPLACED
from amplifierd.profiles.collections.catalogue import Catalogue
from amplifierd.sessions.conversation.context_messages import MentionPlaces
from amplifierd.store.record import SessionRecord

if TYPE_CHECKING:
    from amplifier_foundation.bundle import Bundle
    from amplifier_foundation.prepared import PreparedBundle
    from amplifier_foundation.prepared.system_prompt import SystemPrompt
    from amplifier_foundation.registry import BundleRegistry
    from amplifierd.plans.composition import Composer, Composition

Resolvers = Callable[..., DaemonModuleSourceResolver]


@dataclass(frozen=True)
class SessionSetup:
    """Where a session's modules come from, and what it is told at its beginning.

    `instruction` is the text of a profile or of a profile's agent, and `context` has the files that a behaviour adds to
    it. A bundle has its own way: `bundle` is the one whose system prompt the context is given. `composition` is how a
    bundle's plan was put together. `warning` says what is not as it was when the session was created,
    `newer_build` what a switch to the same profile would bring, and `replaced` which modules are not from the source
    that is named for them.
    """

    resolver: Any
    places: MentionPlaces
    import_path: Callable[[], AbstractContextManager[Any]] = nullcontext
    instruction: str = ""
    context: Mapping[str, Path] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    profile_id: ProfileId | None = None
    build: Build | None = None
    prepared: PreparedBundle | None = None
    bundle: Bundle | None = None
    composition: Composition | None = None
    warning: str | None = None
    newer_build: str | None = None
    replaced: tuple[str, ...] = ()
    place_of: FindPlace = own_place
    """Says where a value of the session's plan comes from."""

    @property
    def base_profile(self) -> str | None:
        """The profile below a bundle."""
        return self.composition.base_profile if self.composition is not None else None

    @property
    def build_id(self) -> str | None:
        """The build of the profile that a session runs, or that its bundle runs over."""
        build = self.composition.base if self.composition is not None else self.build
        return build.build_id if build is not None else None

    @property
    def warnings(self) -> list[dict[str, Any]]:
        """What the session's record says about where its modules come from."""
        changed = [{"code": "build-changed", "message": self.warning}] if self.warning else []
        composed: list[dict[str, Any]] = [*self.composition.remarks] if self.composition is not None else []
        return [*changed, *composed, *({"code": REPLACED, "message": text} for text in self.replaced)]

    def laid_over(self, overrides: Mapping[str, Any], *, is_own: bool) -> SessionSetup:
        """Return the setup of a session over whose plan the person has laid something, or someone else."""
        place_of = self.place_of
        if is_own and isinstance(place_of, OfBuild | OfBundle):
            return replace(self, place_of=place_of.with_own(overrides))
        if not is_own and overrides and place_of is own_place:
            return replace(self, place_of=OfPlan(overrides))
        return self

    def for_agent(self, agent_name: str, instruction: str) -> SessionSetup:
        """Return the setup of a session that works as an agent."""
        own = {"agent": agent_name}
        place_of = self.place_of
        if isinstance(place_of, OfBuild | OfBundle):
            place_of = place_of.for_agent(agent_name)
        if self.prepared is None or self.bundle is None:
            return replace(self, instruction=instruction, context={}, source=own, warning=None, place_of=place_of)
        from amplifier_foundation.spawn import agent_bundle  # few sessions are made from bundles

        bundle = agent_bundle(self.bundle, agent_name, instruction)
        return replace(self, bundle=bundle, source=own, warning=None, place_of=place_of)

    async def give_prompt(self, session: AmplifierSession, working_dir: Path) -> SystemPrompt | None:
        """Give a bundle's session its system prompt; a profile's instruction is a message."""
        if self.prepared is None or self.bundle is None:
            return None
        from amplifier_foundation.prepared.session_setup import announce_mentions, offer_mentions
        from amplifier_foundation.prepared.system_prompt import SystemPrompt, give_system_prompt, has_content

        if not has_content(self.bundle):
            return None
        announce_mentions(session)
        offer_mentions(session, self.bundle, working_dir)
        prompt = SystemPrompt(self.bundle, session, working_dir)
        await give_system_prompt(session.coordinator.get("context"), prompt.build)
        return prompt


class SetupFinder:
    """Finds the setup of stored sessions, in one home."""

    def __init__(
        self,
        paths: Paths,
        profiles: Profiles,
        catalogue: Catalogue,
        resolvers: Resolvers,
        *,
        bundles: Callable[[], BundleRegistry],
        composer: Callable[[], Composer],
        allow_home: bool,
        offline: bool,
    ) -> None:
        self._paths, self._profiles, self._catalogue = paths, profiles, catalogue
        self._resolvers, self._bundles, self._allow_home = resolvers, bundles, allow_home
        self._composer, self._offline = composer, offline
        self._prepared: dict[str, PreparedBundle] = {}
        self._builds: WeakValueDictionary[Path, Build] = WeakValueDictionary()

    async def of_record(self, record: SessionRecord) -> SessionSetup:
        """Return what a stored session runs with."""
        is_foreign = record.verified is False or record.owner not in OWNERS_OF_THE_HOME
        if record.profile_name is not None:
            setup = await self.of_profile(record.profile_name, Path(record.working_dir), record.build_id)
        elif record.bundle is not None:
            self._check_bundle(record, record.bundle)
            directory = Path(record.working_dir)
            setup = await self.of_bundle(record.bundle, directory, record.base_profile, record.build_id)
        else:
            setup = await self.of_plan(Path(record.working_dir), is_requested=is_foreign)
        return setup.laid_over(record.settings_overrides, is_own=record.own_overrides and not is_foreign)

    def _check_bundle(self, record: SessionRecord, reference: str) -> None:
        """Raise if only a file of a stranger names the bundle of a session: its code would run here."""
        if record.verified is not False:
            return
        known = self._bundles().get_state()
        if reference not in known and reference not in {state.uri for state in known.values()}:
            raise SessionStateError(
                f"session {record.session_id} was imported from a file whose signer this home does not trust, and its "
                f"bundle {shown(reference)} is not registered here",
                hint=f"if you trust the bundle, add it: amplifier bundle add {shlex.quote(shown(reference))}",
            )

    async def of_profile(
        self, profile: str, working_dir: Path, build_id: str | None = None, *, build: Build | None = None
    ) -> SessionSetup:
        """Return the setup of a profile: with `build` if the caller has it, else with that of an id if it still exists.

        Raises:
            ProfileCompilationError: `builds.url` is set, and the build cannot be had; or the build was changed.
        """
        profile_id = ProfileId.parse(profile)
        warning = newer = None
        if build is None and build_id is not None:
            build = await self._stored_build(profile_id, build_id)
            published = self._profiles.find_build(profile_id) if build is not None else None
            if build is not None and published is not None and published.build_id != build.build_id:
                newer = published.build_id
        if build is None:
            build = await self._profiles.ensure(profile_id)
            if build_id is not None and build.build_id != build_id:
                warning = f"build-changed: build {build_id} of {profile_id} is gone, {build.build_id} is used"
        build = self._shared(build)
        return SessionSetup(
            resolver=self._resolvers(pins={str(profile_id): build.path}),
            places=self._places(working_dir, build.path / "contexts"),
            import_path=build.import_path,
            instruction=build.instruction(),
            source={"profile": str(profile_id), "build_id": build.build_id},
            profile_id=profile_id,
            build=build,
            warning=warning,
            newer_build=newer,
            replaced=tuple(text for text in build.lock.warnings if text.startswith(f"{REPLACED}: ")),
            place_of=OfBuild(build, self._catalogue.is_fetched),
        )

    async def _stored_build(self, profile_id: ProfileId, build_id: str) -> Build | None:
        build = await self._profiles.open_build(profile_id, build_id)
        if build is None and self._profiles.is_supplied:
            build = await self._profiles.obtain(profile_id, build_id)
        return build

    def _shared(self, build: Build) -> Build:
        """Return one and the same object for all sessions of a build: its lock is large."""
        known = self._builds.setdefault(build.path, build)
        if known != build:
            known = self._builds[build.path] = build
        return known

    async def of_bundle(
        self, reference: str, working_dir: Path, base_profile: str | None = None, build_id: str | None = None
    ) -> SessionSetup:
        """Return the setup of a bundle, loaded, composed over a profile, and prepared."""
        bundle = await self._bundles().load(reference)
        composition = await self._composer().compose(bundle, base_profile, build_id)
        prepared = await self._prepare(composition)
        base, own = composition.base, composition.bundle
        is_behaviour = composition.is_behaviour and base is not None
        resolver = self._resolvers(pins={str(base.profile_id): base.path}) if base is not None else None
        return SessionSetup(
            resolver=ComposedModules(prepared.resolver, resolver, composition.base_profile),
            places=self._places(working_dir, base.path / "contexts" if base else None, own if is_behaviour else None),
            import_path=lambda: _import_paths(prepared, base),
            instruction=base.instruction() if is_behaviour and base is not None else "",
            context=own.context if is_behaviour else {},
            source={"bundle": reference, **({"profile": composition.base_profile} if is_behaviour else {})},
            prepared=prepared,
            bundle=None if is_behaviour else own,
            composition=composition,
            replaced=composition.replaced,
            place_of=OfBundle(
                composition.whole,
                self._paths.cache,
                base=OfBuild(base, self._catalogue.is_fetched) if base is not None else None,
            ),
        )

    async def composition(
        self, reference: str, base_profile: str | None = None, build_id: str | None = None
    ) -> Composition:
        """Return a bundle as sessions run it; none of its modules is fetched.

        Raises:
            BundleError: it cannot be loaded or used.
            ProfileError: it needs the profile of new sessions, which cannot be used.
        """
        return await self._composer().compose(await self._bundles().load_source(reference), base_profile, build_id)

    async def _prepare(self, composition: Composition) -> PreparedBundle:
        """Return one and the same for all sessions that need the same of a bundle."""
        key = composition.fingerprint
        if key not in self._prepared:
            prepared = await composition.bundle.prepare(cache_dir=self._paths.cache, offline=self._offline)
            self._prepared.setdefault(key, prepared)
        return self._prepared[key]

    async def of_plan(self, working_dir: Path, *, is_requested: bool) -> SessionSetup:
        """Return the setup of a plan that stands for itself; one that somebody else wrote is a request."""
        place_of = requested_place if is_requested else own_place
        return SessionSetup(resolver=self._resolvers(), places=self._places(working_dir, None), place_of=place_of)

    def _places(self, working_dir: Path, contexts_dir: Path | None, behaviour: Bundle | None = None) -> MentionPlaces:
        """Return where mentions lead: for a behaviour also into the bundles that it is made of."""
        nowhere = self._paths.profiles / ".none"
        roots = self._catalogue.local_roots()
        if behaviour is not None:
            own = {behaviour.namespace: behaviour.base_path} if behaviour.namespace and behaviour.base_path else {}
            roots = {**own, **behaviour.source_base_paths, **roots}
        return MentionPlaces(working_dir, contexts_dir or nowhere, roots, self._allow_home)


class ComposedModules:
    """Finds the modules of a bundle, and those that its plan has from the profile below it."""

    def __init__(self, own: Any, base: DaemonModuleSourceResolver | None, base_profile: str | None) -> None:
        self._own, self._base, self._base_profile = own, base, base_profile

    def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Any:
        return self._asked(source_hint, profile_hint).resolve(module_id, source_hint, profile_hint)

    async def async_resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Any:
        return await self._asked(source_hint, profile_hint).async_resolve(module_id, source_hint, profile_hint)

    def get_module_source(self, module_id: str) -> str | None:
        found: str | None = self._own.get_module_source(module_id)
        return found

    def _asked(self, source_hint: Any, profile_hint: Any) -> Any:
        is_of_base = self._base is not None and self._base_profile == (profile_hint or source_hint)
        return self._base if is_of_base else self._own


@contextmanager
def _import_paths(prepared: PreparedBundle, base: Build | None) -> Iterator[None]:
    with base.import_path() if base is not None else nullcontext(), _Held(prepared):
        yield


class _Held:
    """Has a prepared bundle's modules on the import path."""

    def __init__(self, prepared: PreparedBundle) -> None:
        self._prepared = prepared

    def __enter__(self) -> None:
        self._release = self._prepared._import_paths.acquire()

    def __exit__(self, *error: object) -> None:
        self._release()
