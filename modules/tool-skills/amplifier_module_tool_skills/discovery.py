"""Where skills are found, and which file counts where several have one name."""

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amplifier_kit.mounting import find_capability, working_dir

from .definition import (
    FILE,
    Diagnostic,
    SkillMetadata,
    extract_skill_body,
    parse_skill,
    parse_skill_frontmatter,
)

__all__ = [
    "Catalogue",
    "Diagnostic",
    "SkillMetadata",
    "SkillSource",
    "SkillsDiscovery",
    "discover_skills",
    "discover_skills_multi_source",
    "extract_skill_body",
    "get_default_skills_dirs",
    "parse_skill_frontmatter",
]

PROJECT_TRUST, OVERLAY, RESOLVER = "project.is_trusted", "runtime_skill_overlay", "mention_resolver"

logger = logging.getLogger(__name__)

_SKIPPED = frozenset({".git", "node_modules", ".venv"})
_DEEPEST, _MOST_DIRECTORIES = 6, 2000
_AMPLIFIER, _AGENTS, _CLAUDE = ".amplifier/skills", ".agents/skills", ".claude/skills"


@dataclass(frozen=True, slots=True)
class SkillSource:
    """A source as it is configured; None as `trusted` means that the place decides: a local one is, a remote is not."""

    address: str
    trusted: bool | None = None

    @classmethod
    def of(cls, given: Any) -> "SkillSource | None":
        """Return the source that a text or a mapping `{source, trusted}` stands for, None for anything else."""
        if isinstance(given, str):
            return cls(given) if given.strip() else None
        if isinstance(given, Mapping) and isinstance(given.get("source"), str) and given["source"].strip():
            trusted = given.get("trusted")
            return cls(given["source"], trusted if isinstance(trusted, bool) else None)
        return None

    @property
    def is_remote(self) -> bool:
        return "://" in self.address or self.address.startswith("git+")


@dataclass(frozen=True, slots=True)
class _Place:
    folder: Path
    source: str
    trusted: bool
    bound: Path | None = None


class Catalogue:
    """The skills that were found, by name, and what is wrong with those that were and were not."""

    def __init__(self) -> None:
        self.skills: dict[str, SkillMetadata] = {}
        self.diagnostics: list[Diagnostic] = []

    def add(self, skill: SkillMetadata) -> None:
        """Take a skill in, unless one of its name is there, which hides it."""
        first = self.skills.setdefault(skill.name, skill)
        if first is not skill and first.path != skill.path:
            message = f"{skill.name!r} from {first.source} ({first.path}) hides {skill.path}"
            self.diagnostics.append(Diagnostic(str(skill.path), "name", "shadowed", "warning", message))

    def add_all(self, place: _Place, *, strict: bool = False) -> None:
        """Take in what is below a folder; of two files with a name the shorter path counts, then the alphabet."""
        for file in sorted(_files(place), key=lambda file: (len(file.parts), file.as_posix())):
            is_root = file.parent == place.folder
            skill, found = parse_skill(file, place.source, trusted=place.trusted, is_root=is_root, strict=strict)
            self.diagnostics += found
            if skill is not None:
                self.add(skill)


class SkillsDiscovery:
    """The skills of one session, computed live: its sources in their order, then what was added for a while.

    Files are looked at again when the places change, and when `refresh` is called.
    """

    def __init__(
        self,
        sources: Sequence[SkillSource] = (),
        coordinator: Any = None,
        *,
        strict: bool = False,
        scans_agents_dirs: bool = True,
        scans_claude_dirs: bool = False,
    ) -> None:
        self._sources, self._added = tuple(sources), list[SkillSource]()
        self._coordinator, self._strict = coordinator, strict
        conventions = [_AMPLIFIER, *([_AGENTS] if scans_agents_dirs else []), *([_CLAUDE] if scans_claude_dirs else [])]
        self._conventions = tuple(conventions)
        self._places: list[_Place] | None = None
        self._problems: list[Diagnostic] = []
        self._catalogue = Catalogue()
        self._is_trusted: dict[Path, bool] = {}

    # --- what applications ask

    def list_skills(self) -> list[tuple[str, str]]:
        """Return names and descriptions, sorted."""
        return [(name, skill.description) for name, skill in sorted(self.catalogue().skills.items())]

    def find(self, name: str) -> SkillMetadata | None:
        """Return the skill of a name, or the one that a shortcut means."""
        skills = self.catalogue().skills
        if name in skills:
            return skills[name]
        return next((skill for _, skill in sorted(skills.items()) if skill.shortcut == name.lower()), None)

    def get_shortcuts(self) -> dict[str, dict[str, Any]]:
        """Return the commands that load a skill: its name and its shortcut, of those that a person may invoke."""
        return self._shortcuts()[0]

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """What is wrong: with files, with sources, and with shortcuts that two skills want."""
        return [*self.catalogue().diagnostics, *self._shortcuts()[1]]

    @property
    def sources(self) -> list[str]:
        """Where skills came from, each once, in order."""
        self.catalogue()
        return list(dict.fromkeys(place.source for place in self._places or ()))

    # --- looking

    def add_source(self, source: SkillSource) -> None:
        """Take in a source for this session, after all others."""
        if source not in self._added:
            self._added.append(source)

    def refresh(self) -> Catalogue:
        """Look at all files again, and ask again whether the project is trusted."""
        self._places = None
        self._is_trusted.clear()
        return self.catalogue()

    def catalogue(self) -> Catalogue:
        problems: list[Diagnostic] = []
        places = list(self._find_places(problems))
        if self._places != places or self._problems != problems:
            catalogue = Catalogue()
            catalogue.diagnostics += problems
            for place in places:
                catalogue.add_all(place, strict=self._strict)
            self._catalogue, self._places, self._problems = catalogue, places, problems
        return self._catalogue

    def problem_of(self, source: SkillSource) -> Diagnostic | None:
        """Return why nothing can be loaded from a source, None where its place was found."""
        found = self._place_of(source)
        return found if isinstance(found, Diagnostic) else None

    def _find_places(self, problems: list[Diagnostic]) -> Iterator[_Place]:
        base, home = working_dir(self._coordinator), Path.home()
        for convention in self._conventions:
            folder = base / convention
            if not folder.is_dir() or base == home:
                continue
            if self._is_trusted_project(base):
                yield _Place(folder, "project", convention == _AMPLIFIER)  # trust is of what is in `.amplifier`
            else:
                problems.append(_untrusted(folder, base))
        if variable := os.environ.get("AMPLIFIER_SKILLS_DIR"):
            yield _Place(base / Path(variable).expanduser(), "AMPLIFIER_SKILLS_DIR", True)
        for convention in self._conventions:
            yield _Place(home / convention, "user", True)
        overlay = find_capability(self._coordinator, OVERLAY)
        contributed = [each for each in overlay if isinstance(each, str)] if isinstance(overlay, list | tuple) else []
        for source in (*self._sources, *self._added, *map(SkillSource, contributed)):
            found = self._place_of(source)
            if isinstance(found, Diagnostic):
                problems.append(found)
            else:
                yield found

    def _place_of(self, source: SkillSource) -> _Place | Diagnostic:
        address, base = source.address, working_dir(self._coordinator)
        if source.is_remote:
            return _cached(source)
        if address.startswith("@"):
            resolve = getattr(find_capability(self._coordinator, RESOLVER), "resolve", None)
            found = resolve(address) if callable(resolve) else None
            if not isinstance(found, Path):
                return _problem(address, "resolved", f"{address} leads nowhere")
            folder = found
        else:
            folder = base / Path(address).expanduser()
        folder = folder.parent if folder.name == FILE else folder
        if not folder.is_dir():
            return _problem(address, "exists", f"{folder} is not a directory")
        is_of_project = _is_within(folder, base) and not _is_within(folder, Path.home() / ".amplifier")
        if is_of_project and source.trusted is not True and not self._is_trusted_project(base):
            return _untrusted(folder, base)
        is_ours = not address.startswith("@") and (not is_of_project or _is_within(folder, base / ".amplifier"))
        return _Place(folder, address, is_ours if source.trusted is None else source.trusted)

    def _is_trusted_project(self, directory: Path) -> bool:
        known = self._is_trusted.get(directory)
        if known is None:  # another thread may forget it meanwhile
            ask = find_capability(self._coordinator, PROJECT_TRUST)
            known = self._is_trusted[directory] = callable(ask) and ask(directory) is True
        return known

    def _shortcuts(self) -> tuple[dict[str, dict[str, Any]], list[Diagnostic]]:
        found: dict[str, dict[str, Any]] = {}
        collisions: list[Diagnostic] = []
        invocable = [skill for _, skill in sorted(self.catalogue().skills.items()) if skill.user_invocable]
        for skill in invocable:
            found[skill.name] = _command(skill)
        for skill in invocable:
            if not skill.shortcut or skill.shortcut == skill.name:
                continue
            taken = found.setdefault(skill.shortcut, _command(skill))
            if taken["name"] != skill.name:
                message = f"/{skill.shortcut} means {taken['name']!r}; {skill.name!r} is reached as /{skill.name}"
                collisions.append(Diagnostic(str(skill.path), "shortcut", "unique", "warning", message))
        return found, collisions


def discover_skills(directory: Path) -> dict[str, SkillMetadata]:
    """Return the skills below a directory, by name."""
    return discover_skills_multi_source([directory])


def discover_skills_multi_source(directories: Iterable[Path | str]) -> dict[str, SkillMetadata]:
    """Return the skills below several directories, by name; the first directory that has a name counts."""
    catalogue = Catalogue()
    for directory in directories:
        catalogue.add_all(_Place(Path(directory).expanduser(), str(directory), True))
    return catalogue.skills


def get_default_skills_dirs() -> list[Path]:
    """Return where skills are looked for when nothing is configured: the variable, the project, the person."""
    variable = os.environ.get("AMPLIFIER_SKILLS_DIR")
    named = [Path(variable).expanduser()] if variable else []
    return [*named, Path(_AMPLIFIER), Path.home() / _AMPLIFIER]


def _command(skill: SkillMetadata) -> dict[str, Any]:
    return {"name": skill.name, "description": skill.description, "context": skill.context}


def _files(place: _Place) -> Iterator[Path]:
    """Yield the files `SKILL.md` below a folder; links are followed as long as they stay in its repository."""
    root = place.folder
    bound = place.bound or _repository_of(root) or root.resolve()
    waiting, seen = [(root, 0)], set[Path]()
    while waiting and len(seen) < _MOST_DIRECTORIES:
        folder, depth = waiting.pop(0)
        real = folder.resolve()
        if real in seen or not real.is_relative_to(bound):
            continue
        seen.add(real)
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            path = Path(entry.path)
            if entry.name == FILE and _is(entry.is_file) and path.resolve().is_relative_to(bound):
                yield path
            elif depth < _DEEPEST and entry.name not in _SKIPPED and _is(entry.is_dir):
                waiting.append((path, depth + 1))


def _is(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except OSError:  # a link that leads in a circle
        return False


def _repository_of(folder: Path) -> Path | None:
    real, home = folder.resolve(), Path.home().resolve()
    return next((each for each in (real, *real.parents) if each != home and (each / ".git").exists()), None)


def _is_within(path: Path, directory: Path) -> bool:
    return path.resolve().is_relative_to(directory.resolve())


def _cached(source: SkillSource) -> _Place | Diagnostic:
    """Return where an earlier clone of a remote source is kept; none is made here."""
    address = source.address
    if not address.startswith(("git+https://", "https://")):
        return _problem(address, "scheme", f"{address} is refused: a remote source begins with git+https://")
    whole, _, fragment = address.removeprefix("git+").partition("#")
    scheme, _, rest = whole.partition("://")
    place, _, ref = rest.partition("@")
    url, ref = f"{scheme}://{place}", ref or "main"
    parameters = dict(part.partition("=")[::2] for part in fragment.split("&"))
    key = hashlib.sha256(f"{url}@{ref}".encode()).hexdigest()[:16]
    name = url.rstrip("/").rpartition("/")[2].removesuffix(".git")
    clone = Path.home() / ".amplifier/cache/skills" / f"{name}-{key}"
    folder = clone / parameters.get("subdirectory", "")
    if not folder.is_dir() or not _is_within(folder, clone):
        message = f"{address} is not loaded: this module clones nothing, and there is no clone of it in {clone}"
        return _problem(address, "cached", message)
    return _Place(folder, address, source.trusted is True, clone.resolve())


def _problem(address: str, rule: str, message: str) -> Diagnostic:
    return Diagnostic(address, "source", rule, "warning", message)


def _untrusted(folder: Path, project: Path) -> Diagnostic:
    return _problem(str(folder), "trust", f"{folder} is not loaded: the project {project} is not trusted")
