"""The bundle itself: what one file, or several composed ones, say about a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from amplifier_core.mount_plan import MountPlan
from amplifier_foundation import provenance
from amplifier_foundation.dicts.merge import deep_merge, merge_module_lists
from amplifier_foundation.exceptions import BundleLoadError
from amplifier_foundation.paths.construction import construct_agent_path, construct_context_path
from amplifier_system.policy import merge_policies

from . import agents, files, modes
from .origins import Origin, OriginLedger

if TYPE_CHECKING:
    from amplifier_foundation.prepared import PreparedBundle

PLAN_SECTIONS = ("session", "providers", "tools", "hooks", "agents", "spawn")
"""What a mount plan is made of, in its order."""

_COLLECTIONS: dict[str, type[list[Any]] | type[dict[str, Any]]] = {
    "includes": list,
    "session": dict,
    "providers": list,
    "tools": list,
    "hooks": list,
    "spawn": dict,
    "agents": dict,
    "context": dict,
    "source_base_paths": dict,
    "_pending_context": dict,
    "origins": dict,
}


@dataclass
class Bundle:
    """A composable unit of configuration: modules, agents, context files and an instruction.

    `source_base_paths` maps a namespace to the directory that holds its `agents/`, `context/` and so on.
    `from_meta` says that name and description come from an agent's `meta:`; such a name never becomes a namespace.
    `_agent_instruction` says that the instruction is an agent's, whose mentions are taken to the letter.
    """

    name: str
    version: str = "1.0.0"
    description: str = ""
    includes: list[Any] = field(default_factory=list)
    namespace_root: str | None = None
    session: dict[str, Any] = field(default_factory=dict)
    providers: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    hooks: list[dict[str, Any]] = field(default_factory=list)
    spawn: dict[str, Any] = field(default_factory=dict)
    agents: dict[str, dict[str, Any]] = field(default_factory=dict)
    context: dict[str, Path] = field(default_factory=dict)
    instruction: str | None = None
    base_path: Path | None = None
    source_base_paths: dict[str, Path] = field(default_factory=dict)
    _pending_context: dict[str, str] = field(default_factory=dict)
    origins: dict[str, list[Origin]] = field(default_factory=dict)
    from_meta: bool = field(default=False, compare=False)
    _agent_instruction: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name, kind in _COLLECTIONS.items():
            if getattr(self, name) is None:
                setattr(self, name, kind())
        self._file: Path | None = None  # where the bundle was read from
        self._remarks: tuple[str, ...] = ()  # what is wrong with that file, though it can be used
        self._reported_gaps: frozenset[str] = frozenset()  # what is known to be missing
        self._left_out: tuple[str, ...] = ()  # the includes that failed, with the reason
        self._layers: tuple[provenance.Layer, ...] = ()  # what it was composed of, if it was
        self._source_uri: str  # set by the registry on what it returns

    @classmethod
    def from_dict(cls, data: dict[str, Any], base_path: Path | None = None) -> Self:
        """Build a bundle from the mapping of a bundle file; relative paths in it count from `base_path`.

        Raises:
            BundleValidationError: `providers`, `tools` or `hooks` is not a list of mappings.
            BundleLoadError: another section has the wrong shape; the message names its key.
        """
        return cls(**files.parse_sections(data, base_path))

    @property
    def namespace(self) -> str:
        """The name under which others refer to this bundle's files; empty when it has none."""
        return "" if self.from_meta else self.name

    def compose(self, *others: Bundle) -> Bundle:
        """Return a new bundle in which each of `others`, in order, is laid over this one.

        Mappings are merged, modules by `id` or else `module`, agents replaced by name, context files collected; the
        last instruction counts. No bundle is changed; values that need no merging are shared.
        """
        return compose(self, others)

    def to_mount_plan(self) -> dict[str, Any]:
        """Return what `AmplifierSession` needs: the sections that are not empty. Entries are shared with the bundle."""
        plan = {name: section.copy() for name in PLAN_SECTIONS if (section := getattr(self, name))}
        if "policy" in plan.get("session", ()):
            plan["session"] = with_policy(plan["session"], {}, plan["session"])
        return plan

    def view(self) -> MountPlan:
        """Return the sections of a mount plan as they stand here, empty ones included, to be read as a plan is."""
        return MountPlan({name: getattr(self, name) for name in PLAN_SECTIONS})

    def module_lists(self) -> dict[str, list[dict[str, Any]]]:
        """Return providers, tools and hooks by these names, as they stand here."""
        return MountPlan(vars(self)).lists()

    async def prepare(
        self,
        install_deps: bool = True,
        source_resolver: Callable[[str, str], str] | None = None,
        progress_callback: Callable[[str, str], None] | None = None,
        strict: bool = False,
        *,
        cache_dir: Path | None = None,
        offline: bool | None = None,
    ) -> PreparedBundle:
        """Fetch and activate every module this bundle names, and return it ready to create sessions.

        `source_resolver(module_id, source)` may give another source for a module. `progress_callback(action, detail)`
        is told what happens. A module that fails is logged and left out, or with `strict` an error. `offline=True`
        fetches no source, None lets `AMPLIFIERD_OFFLINE` decide.
        """
        # Preparing needs modules, environments and the kernel; composing does not.
        from amplifier_foundation.prepared import prepare_bundle

        return await prepare_bundle(
            self,
            install_deps=install_deps,
            source_resolver=source_resolver,
            progress_callback=progress_callback,
            strict=strict,
            cache_dir=cache_dir,
            offline=offline,
        )

    def explain(self, path: str) -> dict[str, Any]:
        """Say which file set a value: `{value, origin{bundle, file, line}, overrode[]}`.

        `path` has dotted keys, and brackets for list entries by identity or for keys with dots:
        `tools[tool-bash].config.timeout`. `overrode` lists the earlier settings of the same path, the oldest first,
        each with `value`, `origin` and `merged`: whether it is part of the value or was replaced. A value that no file
        and no composed bundle set has an origin of `None`s.

        Raises:
            KeyError: the bundle has no such value.
        """
        whole, layers = self._explained_sections(self.context), self._get_layers(self.context)
        return provenance.explain(whole, layers, path, owner="bundle", replaced=("agents",))

    def resolve_context_path(self, name: str) -> Path | None:
        """Return the path of a context file: as declared, else below the bundle's directory if it is there."""
        if name in self.context:
            return self.context[name]
        return _existing(construct_context_path(self.base_path, name)) if self.base_path else None

    def resolve_agent_path(self, name: str) -> Path | None:
        """Return the file of agent `name` or `namespace:name`, or `None`.

        An agent without namespace is looked for in the bundle's own directory, then with the bundle that declared it,
        then with every other bundle that was composed.
        """
        namespace, colon, rest = name.partition(":")
        if colon:
            places = [self.source_base_paths.get(namespace), self.base_path if namespace == self.name else None]
        else:
            rest = name
            declaring = [self.source_base_paths.get(origin.bundle) for origin in self.origins.get(f"agent:{name}", ())]
            places = [self.base_path, *declaring, *self.source_base_paths.values()]
        found = (_existing(construct_agent_path(place, rest)) for place in places if place)
        return next((path for path in found if path), None)

    def get_system_instruction(self) -> str | None:
        return self.instruction

    def resolve_pending_context(self) -> None:
        """Turn `namespace:path` context references into paths, as far as their namespaces are known by now."""
        for reference in list(self._pending_context):
            if path := self.find_pending(reference):
                self.context[reference] = path
                del self._pending_context[reference]

    def find_namespace(self, namespace: str) -> Path | None:
        """Return the directory of a namespace, `None` when this bundle does not know it."""
        return self.source_base_paths.get(namespace) or (self.base_path if namespace == self.name else None)

    def find_pending(self, reference: str) -> Path | None:
        """Return the path that a context reference `namespace:path` means, `None` while its namespace is unknown."""
        namespace, _, rest = reference.partition(":")
        base = self.find_namespace(namespace)
        return construct_context_path(base, rest) if base else None

    def validate_modes(self) -> list[str]:
        """Return a sentence for everything that is wrong with the mode files in `modes/`, of composed bundles too.

        An empty list means that every mode can be used as it is written.
        """
        return modes.find_mode_faults(self)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The includes that failed when the bundle was loaded, in words."""
        return self._left_out

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is wrong with the bundle though it can be used: misspelled sections, and files that are not there."""
        return (*self._remarks, *sorted(self._reported_gaps))

    def layers(self) -> tuple[provenance.Layer, ...]:
        """Return what this bundle is composed of: of every file, the part that it says."""
        return self._get_layers(_prefixed_context(self))

    def revised(self, layers: Sequence[provenance.Layer], **sections: Any) -> Self:
        """Return a copy with other sections, and with other layers that explain them."""
        result = copy(self)
        for name, section in sections.items():
            setattr(result, name, section)
        result._layers = tuple(layers)
        return result

    def load_agent_metadata(self) -> None:
        """Fill what the agents' definitions leave open from their files; what a definition says itself stays.

        `prepare()` does it, so that modules which only agent files name are activated too. An agent file that cannot be
        read is logged and skipped.
        """
        agents.fill_from_files(self)

    def _explained_sections(self, context: dict[str, Path]) -> dict[str, Any]:
        files = self.to_mount_plan() | {"context": context, "instruction": self.instruction}
        return {name: section for name, section in files.items() if section}

    def _get_layers(self, context: dict[str, Path]) -> tuple[provenance.Layer, ...]:
        """Return what this bundle is composed of; `context` has its context files under the keys they go by."""
        return self._layers or (provenance.Layer(self.name, self._file, self._explained_sections(context)),)


def _existing(path: Path) -> Path | None:
    try:
        return path if path.exists() else None
    except OSError:  # a name no file system can hold
        return None


def compose(base: Bundle, others: Sequence[Bundle]) -> Bundle:
    """Return a new bundle: `base` with each of `others` laid over it in turn."""
    context = _prefixed_context(base)
    ledger = OriginLedger(base, context)
    result = replace(
        base,
        includes=list(base.includes),
        session=dict(base.session),
        providers=list(base.providers),
        tools=list(base.tools),
        hooks=list(base.hooks),
        spawn=dict(base.spawn),
        agents=dict(base.agents),
        context=dict(context),
        source_base_paths=dict(base.source_base_paths),
        _pending_context=dict(base._pending_context),
        origins=ledger.origins,
    )
    if base.namespace and base.base_path:
        result.source_base_paths.setdefault(base.namespace, base.base_path)
    layers = [*base._get_layers(context)]
    for other in others:
        other_context = _prefixed_context(other)
        layers += other._get_layers(other_context)
        ledger.add(other, other_context, result.session)
        _lay_over(result, other, other_context)
    if others:
        listed = [other.module_lists() for other in others]
        for section, entries in base.module_lists().items():  # one merge for all: overlays apply entry by entry
            overlays = chain.from_iterable(lists[section] for lists in listed)
            setattr(result, section, merge_module_lists(entries, overlays))
    result._layers = tuple(layers)
    return result


def _lay_over(result: Bundle, other: Bundle, other_context: dict[str, Path]) -> None:
    if other.namespace:
        result.name, result.from_meta = other.name, False
    result.version = other.version or result.version
    result.description = other.description or result.description
    if other.instruction:
        result.instruction, result._agent_instruction = other.instruction, other._agent_instruction
    result.base_path = other.base_path or result.base_path
    result.session = with_policy(deep_merge(result.session, other.session), result.session, other.session)
    result.spawn = deep_merge(result.spawn, other.spawn)
    result.agents.update(other.agents)
    result.context.update(other_context)
    result._pending_context.update(other._pending_context)
    _register_namespaces(result.source_base_paths, other)


def _register_namespaces(known: dict[str, Path], other: Bundle) -> None:
    """Add the namespaces that are not known yet: the first registration of a name wins."""
    own = other.namespace
    for namespace, path in other.source_base_paths.items():
        if namespace != own:
            known.setdefault(namespace, path)
    path_of_own = other.source_base_paths.get(own) or other.base_path
    if own and path_of_own:
        known.setdefault(own, path_of_own)


def _prefixed_context(bundle: Bundle) -> dict[str, Path]:
    """Return a bundle's context files under keys that say whose they are: `<name>:<key>`."""
    if not bundle.namespace:
        return dict(bundle.context)
    return {key if ":" in key else f"{bundle.namespace}:{key}": path for key, path in bundle.context.items()}


# The policy of a composed session: a bundle can narrow what it is laid over, and the defaults, never widen them.


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
