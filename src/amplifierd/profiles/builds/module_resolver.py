"""From a plan's hint to the directory of a compiled module: what the kernel's loader asks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amplifier_core.local_sources import path_of_source
from amplifier_core.module_sources import ModuleNotFoundError as KernelModuleNotFoundError
from amplifier_foundation.paths import parse_uri
from amplifier_foundation.sources import Sources
from amplifierd.identifiers import MOUNT_TYPES, ProfileId, find_mount_type, is_module_id, mount_type

from .lock import DEPENDENCIES_DIR, DEPENDENCY_REASON


class HintMissingError(KernelModuleNotFoundError, ValueError):
    """A plan names no source for the module; the kernel goes on to installed entry points."""


class CompiledModuleMissingError(FileNotFoundError, ValueError):
    """A build lacks a module that its lock says it has: no other version takes its place."""


class ModuleLeftOutError(KernelModuleNotFoundError, CompiledModuleMissingError):
    """A profile names a source for the module that could not be used; no installed module takes its place."""

    names_source = True


class ModuleNotCompiledError(KernelModuleNotFoundError, CompiledModuleMissingError):
    """A profile has no directory for the module because it uses the installed one; the kernel goes on to that."""


@dataclass(frozen=True)
class CompiledModuleSource:
    """The directory of one module in a build; `resolve` says whether it is there."""

    module_id: str
    path: Path
    build_dir: Path | None = None

    def __str__(self) -> str:
        return f"{self.module_id} in {self.path}"

    def resolve(self) -> Path:
        """Return the directory that holds the module's package.

        Raises:
            ModuleNotCompiledError: the profile uses the installed module.
            ModuleLeftOutError: the profile's source for it could not be used when the profile was compiled.
            CompiledModuleMissingError: the build is damaged.
        """
        if self.path.is_dir():
            return self.path
        message = f"Module '{self.module_id}' not found: Module path not found: {self.path}"
        if self.build_dir is not None and _is_locked_with_path(self.build_dir, self.module_id):
            raise CompiledModuleMissingError(
                f"{message}\n  fix: compile the profile again, it is restored from the cache"
            )
        locked = _find_locked(self.build_dir, self.module_id)
        if locked.get("status") == "missing" and locked.get("ref"):
            fix = "see what is wrong with its source, and compile the profile again"
            raise ModuleLeftOutError(f"{message}, and its source {locked['ref']} could not be used\n  fix: {fix}")
        raise ModuleNotCompiledError(message)

    @property
    def reference(self) -> str:
        """What the profile says about where the module comes from; empty when that is not known."""
        entry = _find_locked(self.build_dir, self.module_id)
        return str(entry.get("ref") or "")

    def advise(self, error: ImportError) -> str | None:
        """Return what to do about an import that failed: the package is in the build, or could not be installed."""
        if self.build_dir is None or not error.name:
            return None
        dependencies = Path(os.path.realpath(self.build_dir), DEPENDENCIES_DIR)
        package = dependencies / error.name.partition(".")[0]
        if (package.exists() or package.with_suffix(".py").exists()) and str(dependencies) not in sys.path:
            return f"enter `with build.import_path():` before the session starts; the build has {error.name!r} there"
        prefix = f"{DEPENDENCY_REASON}: {self.module_id}: "
        reasons = [text.removeprefix(prefix) for text in _warnings(self.build_dir) if text.startswith(prefix)]
        return f"compile the profile again when this can be installed: {'; '.join(reasons)}" if reasons else None


class DaemonModuleSourceResolver:
    """Finds the modules of compiled profiles. An application mounts it as `module-source-resolver`.

    Args:
        share_dir: the home's `share/`.
        pins: profile id → the immutable build directory that a session is bound to, instead of the published one.
        module_roots: further directories in which a plan's own paths may lie.
        sources: resolves references in hand-written plans; without it they are refused.
    """

    def __init__(
        self,
        share_dir: Path | str,
        *,
        pins: Mapping[str, Path] | None = None,
        module_roots: Sequence[Path] = (),
        sources: Sources | None = None,
    ) -> None:
        self._profiles_dir = Path(share_dir).absolute() / "profiles"
        self._pins = {str(profile): Path(build) for profile, build in (pins or {}).items()}
        self._module_roots = tuple(Path(root).resolve() for root in module_roots)
        self._sources = sources

    def resolve(
        self, module_id: str, source_hint: Any = None, profile_hint: Any = None, *, mount_type: str | None = None
    ) -> CompiledModuleSource:
        """Return where a module should be; nothing is looked at on disk yet.

        Raises:
            ValueError: the hint is missing, malformed, outside the allowed roots, or a reference.
        """
        hint = source_hint if source_hint not in (None, "") else profile_hint
        if _is_remote(hint):
            raise ValueError(
                f"Module '{module_id}' has a reference as its source ({hint}), and such sources are not resolved here: "
                "set security.allow_plan_sources to true, or name a compiled profile"
            )
        if isinstance(hint, str) and path_of_source(hint) is not None:
            path = self._allowed_path(hint)
            return CompiledModuleSource(module_id, path, self._find_build(path))
        return self._compiled(module_id, _parse_hint(module_id, hint), mount_type)

    async def async_resolve(
        self, module_id: str, source_hint: Any = None, profile_hint: Any = None, *, mount_type: str | None = None
    ) -> CompiledModuleSource:
        """Do the same; references in the plan are fetched when the application allows them."""
        hint = source_hint if source_hint not in (None, "") else profile_hint
        if self._sources is not None and _is_remote(hint):
            resolved = await self._sources.resolve(hint)
            return CompiledModuleSource(module_id, resolved.path)
        return self.resolve(module_id, source_hint, profile_hint, mount_type=mount_type)

    def _compiled(self, module_id: str, profile_id: ProfileId, known_type: str | None) -> CompiledModuleSource:
        if not is_module_id(module_id):
            raise ValueError(f"Could not determine mount type for module: {module_id}")
        published = self._profiles_dir / profile_id.collection / profile_id.name
        build_dir = self._pins.get(str(profile_id), published)
        path = build_dir / _checked_type(module_id, known_type) / module_id
        return CompiledModuleSource(module_id, path, build_dir)

    def _find_build(self, path: Path) -> Path | None:
        """Return the published directory or the build that a module's directory should be in."""
        build_dir = path.parent.parent
        is_published = build_dir.parent.parent == self._profiles_dir
        return build_dir if is_published or build_dir in self._pins.values() else None

    def _allowed_path(self, source: str) -> Path:
        path = path_of_source(source)
        roots = (self._profiles_dir.resolve(), *self._module_roots, *(pin.resolve() for pin in self._pins.values()))
        if path is None or not any(path.resolve().is_relative_to(root) for root in roots):
            raise ValueError(
                f"Module source outside allowed roots: {source} (allowed: {', '.join(map(str, roots))}; "
                "more can be named in security.module_roots)"
            )
        return path


def _is_remote(hint: Any) -> bool:
    if not isinstance(hint, str):
        return False
    parsed = parse_uri(hint)
    return parsed.is_git or parsed.is_zip or parsed.is_http


def _parse_hint(module_id: str, hint: Any) -> ProfileId:
    expected = f"Module '{module_id}': profile_hint must be 'collection/profile' or {{collection, profile}}"
    if hint is None or hint == "":
        raise HintMissingError(
            f"Module '{module_id}' is not installed, and it has no source (profile_hint must be 'collection/profile')",
            hint="correct its name, or give it a source, for example git+https://host/org/repo@v1",
        )
    if isinstance(hint, Mapping):
        parts = [hint.get("collection"), hint.get("profile")]
        if not all(isinstance(part, str) and part for part in parts):
            raise ValueError(f"{expected}, got {dict(hint)!r}")
        text = "/".join(map(str, parts))
    elif isinstance(hint, str) and "/" in hint:
        text = hint
    else:
        raise ValueError(f"{expected}, got {hint!r}")
    try:
        return ProfileId.parse(text)
    except ValueError:
        raise ValueError(f"Invalid profile hint: {text}") from None


def _checked_type(module_id: str, known_type: str | None) -> str:
    """Return where a module is mounted; what the caller knows must agree with its ID, if that tells anything."""
    if known_type is None:
        return mount_type(module_id)
    if known_type not in MOUNT_TYPES:
        raise ValueError(f"Unknown mount type for module {module_id}: {known_type}")
    inferred = find_mount_type(module_id) or known_type
    if inferred != known_type:
        raise ValueError(f"Module '{module_id}' belongs to '{inferred}' but is listed under '{known_type}'")
    return known_type


def _is_locked_with_path(build_dir: Path, module_id: str) -> bool:
    """True if a build's lock names a directory of its own for a module."""
    return bool(_find_locked(build_dir, module_id).get("path"))


def _find_locked(build_dir: Path | None, module_id: str) -> Mapping[str, Any]:
    """Return what a build's lock says about a module, nothing when it cannot be read."""
    resources = _read_lock(build_dir).get("resources")
    if not isinstance(resources, Mapping):
        return {}
    found = [entry for part in resources.values() for entry in (part if isinstance(part, list) else [part])]
    return next((entry for entry in found if isinstance(entry, Mapping) and entry.get("name") == module_id), {})


def _warnings(build_dir: Path | None) -> list[str]:
    warnings = _read_lock(build_dir).get("warnings")
    return [text for text in warnings if isinstance(text, str)] if isinstance(warnings, list) else []


def _read_lock(build_dir: Path | None) -> dict[str, Any]:
    """Return a build's lock as it stands there; the resolver works for builds of any version."""
    if build_dir is None:
        return {}
    try:
        lock = json.loads((build_dir / "profile.lock").read_bytes())
    except (OSError, ValueError):
        return {}
    return lock if isinstance(lock, dict) else {}
