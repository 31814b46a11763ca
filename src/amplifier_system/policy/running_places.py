"""Running places: files whose content runs, or instructs, without a person running the project.

The table is the whole list; every row says why. A path is below a running place when consecutive parts of it have the
name of a row, whatever their case; a row that begins with `~/` counts in the home directory only, and one that begins
with `*` for all names with that ending.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

Treatment = Literal["denied", "asked", "packages"]
"""How a place is kept: no file tool writes it, a person is asked about it, or package managers fill it.

The last are asked about when a file tool writes them; what an approved command changes there is only shown.
"""


@dataclass(frozen=True, slots=True)
class RunningPlace:
    """One row: a name, what its content does, and how it is kept."""

    name: str
    reason: str
    treatment: Treatment = "asked"


_HOOKS = "runs at the next git command"
_EDITOR = "runs when an editor opens this folder"
_AGENT = "instructs or runs code for every later agent session here"
_INSTRUCTS = "instructs every later session here"
_CI = "runs on the build servers of this project"
_MANAGER = "chooses code that a package manager runs"
_PACKAGES = "is run by every program of this environment"
_SHELL = "runs in the next shell"
_PROGRAM = "runs when a program of yours starts"

PLACES: tuple[RunningPlace, ...] = (
    RunningPlace(".git", _HOOKS, "denied"),
    RunningPlace(".hg", "runs at the next hg command", "denied"),
    RunningPlace(".amplifier", "chooses which code later sessions run here", "denied"),
    RunningPlace(".githooks", _HOOKS),
    RunningPlace(".husky", _HOOKS),
    RunningPlace(".pre-commit-config.yaml", _HOOKS),
    RunningPlace("lefthook.yml", _HOOKS),
    RunningPlace(".lefthook.yml", _HOOKS),
    RunningPlace("lefthook.yaml", _HOOKS),
    RunningPlace("lefthook-local.yml", _HOOKS),
    RunningPlace(".overcommit.yml", _HOOKS),
    RunningPlace(".simple-git-hooks.json", _HOOKS),
    RunningPlace(".lintstagedrc", _HOOKS),
    RunningPlace(".lintstagedrc.json", _HOOKS),
    RunningPlace(".envrc", "runs when a shell enters this folder"),
    RunningPlace(".mise.toml", "runs when a shell enters this folder"),
    RunningPlace("mise.toml", "runs when a shell enters this folder"),
    RunningPlace(".mise.local.toml", "runs when a shell enters this folder"),
    RunningPlace("mise.local.toml", "runs when a shell enters this folder"),
    RunningPlace(".mise", "runs when a shell enters this folder"),
    RunningPlace(".config/mise", "runs when a shell enters this folder"),
    RunningPlace(".config/mise.toml", "runs when a shell enters this folder"),
    RunningPlace(".autoenv", "runs when a shell enters this folder"),
    RunningPlace(".vscode", _EDITOR),
    RunningPlace(".idea", _EDITOR),
    RunningPlace(".zed", _EDITOR),
    RunningPlace("*.code-workspace", _EDITOR),
    RunningPlace("*.sublime-project", _EDITOR),
    RunningPlace(".fleet", _EDITOR),
    RunningPlace(".helix", _EDITOR),
    RunningPlace(".exrc", _EDITOR),
    RunningPlace(".vimrc", _EDITOR),
    RunningPlace(".nvimrc", _EDITOR),
    RunningPlace(".lvimrc", _EDITOR),
    RunningPlace(".ycm_extra_conf.py", _EDITOR),
    RunningPlace(".nvim.lua", _EDITOR),
    RunningPlace(".dir-locals.el", _EDITOR),
    RunningPlace(".dir-locals-2.el", _EDITOR),
    RunningPlace(".devcontainer", "runs when an editor opens this folder in a container"),
    RunningPlace(".devcontainer.json", "runs when an editor opens this folder in a container"),
    RunningPlace(".claude", _AGENT),
    RunningPlace(".codex", _AGENT),
    RunningPlace(".cursor", _AGENT),
    RunningPlace(".agents", _AGENT),
    RunningPlace(".gemini", _AGENT),
    RunningPlace(".windsurf", _AGENT),
    RunningPlace(".opencode", _AGENT),
    RunningPlace("opencode.json", _AGENT),
    RunningPlace("opencode.jsonc", _AGENT),
    RunningPlace(".continue", _AGENT),
    RunningPlace(".roo", _AGENT),
    RunningPlace(".kiro", _AGENT),
    RunningPlace(".junie", _AGENT),
    RunningPlace(".goose", _AGENT),
    RunningPlace(".qwen", _AGENT),
    RunningPlace(".crush.json", _AGENT),
    RunningPlace("crush.json", _AGENT),
    RunningPlace(".aider.conf.yml", _AGENT),
    RunningPlace(".mcp.json", "starts programs for every later agent session here"),
    RunningPlace("AGENTS.md", _INSTRUCTS),
    RunningPlace("AGENTS.local.md", _INSTRUCTS),
    RunningPlace("AGENT.md", _INSTRUCTS),
    RunningPlace("CLAUDE.md", _INSTRUCTS),
    RunningPlace("CLAUDE.local.md", _INSTRUCTS),
    RunningPlace("GEMINI.md", _INSTRUCTS),
    RunningPlace("QWEN.md", _INSTRUCTS),
    RunningPlace("AGENTS.override.md", _INSTRUCTS),
    RunningPlace(".goosehints", _INSTRUCTS),
    RunningPlace(".roorules", _INSTRUCTS),
    RunningPlace(".rules", _INSTRUCTS),
    RunningPlace(".cursorrules", _INSTRUCTS),
    RunningPlace(".windsurfrules", _INSTRUCTS),
    RunningPlace(".clinerules", _INSTRUCTS),
    RunningPlace(".github/copilot-instructions.md", _INSTRUCTS),
    RunningPlace(".github/instructions", _INSTRUCTS),
    RunningPlace(".github/prompts", _INSTRUCTS),
    RunningPlace(".github/chatmodes", _INSTRUCTS),
    RunningPlace(".github/agents", _INSTRUCTS),
    RunningPlace(".github/workflows", _CI),
    RunningPlace(".github/actions", _CI),
    RunningPlace(".gitlab-ci.yml", _CI),
    RunningPlace(".gitlab", _CI),
    RunningPlace(".forgejo", _CI),
    RunningPlace(".gitea", _CI),
    RunningPlace(".tekton", _CI),
    RunningPlace(".semaphore", _CI),
    RunningPlace(".teamcity", _CI),
    RunningPlace(".cirrus.yml", _CI),
    RunningPlace(".build.yml", _CI),
    RunningPlace(".builds", _CI),
    RunningPlace("appveyor.yml", _CI),
    RunningPlace(".appveyor.yml", _CI),
    RunningPlace("cloudbuild.yaml", _CI),
    RunningPlace("buildspec.yml", _CI),
    RunningPlace(".circleci", _CI),
    RunningPlace(".buildkite", _CI),
    RunningPlace(".woodpecker", _CI),
    RunningPlace(".woodpecker.yml", _CI),
    RunningPlace(".woodpecker.yaml", _CI),
    RunningPlace(".travis.yml", _CI),
    RunningPlace(".drone.yml", _CI),
    RunningPlace("azure-pipelines.yml", _CI),
    RunningPlace("azure-pipelines.yaml", _CI),
    RunningPlace(".azure-pipelines", _CI),
    RunningPlace("bitbucket-pipelines.yml", _CI),
    RunningPlace("Jenkinsfile", _CI),
    RunningPlace(".npmrc", _MANAGER),
    RunningPlace("bunfig.toml", _MANAGER),
    RunningPlace(".yarnrc", _MANAGER),
    RunningPlace(".yarnrc.yml", _MANAGER),
    RunningPlace(".yarn/releases", _MANAGER),
    RunningPlace(".yarn/plugins", _MANAGER),
    RunningPlace(".pnpmfile.cjs", _MANAGER),
    RunningPlace(".pnpmfile.mjs", _MANAGER),
    RunningPlace(".bundle", _MANAGER),
    RunningPlace(".mvn", _MANAGER),
    RunningPlace(".bazelrc", _MANAGER),
    RunningPlace(".cargo/config.toml", _MANAGER),
    RunningPlace(".cargo/config", _MANAGER),
    RunningPlace("node_modules/.bin", _PACKAGES, "packages"),
    RunningPlace(".venv", _PACKAGES, "packages"),
    RunningPlace("venv", _PACKAGES, "packages"),
    RunningPlace("pyvenv.cfg", _PACKAGES, "packages"),
    RunningPlace("site-packages", _PACKAGES, "packages"),
    RunningPlace("dist-packages", _PACKAGES, "packages"),
    RunningPlace("~/.bashrc", _SHELL),
    RunningPlace("~/.bash_profile", _SHELL),
    RunningPlace("~/.bash_login", _SHELL),
    RunningPlace("~/.bash_logout", _SHELL),
    RunningPlace("~/.bash_aliases", _SHELL),
    RunningPlace("~/.profile", _SHELL),
    RunningPlace("~/.zshrc", _SHELL),
    RunningPlace("~/.zshenv", _SHELL),
    RunningPlace("~/.zprofile", _SHELL),
    RunningPlace("~/.zlogin", _SHELL),
    RunningPlace("~/.zlogout", _SHELL),
    RunningPlace("~/.config/fish", _SHELL),
    RunningPlace("~/.config/zsh", _SHELL),
    RunningPlace("~/.config/nushell", _SHELL),
    RunningPlace("~/.config/starship.toml", _SHELL),
    RunningPlace("~/.config/environment.d", _SHELL),
    RunningPlace("~/.kshrc", _SHELL),
    RunningPlace("~/.cshrc", _SHELL),
    RunningPlace("~/.tcshrc", _SHELL),
    RunningPlace("~/.xprofile", _SHELL),
    RunningPlace("~/.xinitrc", _SHELL),
    RunningPlace("~/.xsession", _SHELL),
    RunningPlace("~/.pam_environment", _SHELL),
    RunningPlace("~/.inputrc", _SHELL),
    RunningPlace("~/.gitconfig", _HOOKS),
    RunningPlace("~/.config/git", _HOOKS),
    RunningPlace("~/.hgrc", "runs at the next hg command"),
    RunningPlace("~/.tmux.conf", _PROGRAM),
    RunningPlace("~/.config/tmux", _PROGRAM),
    RunningPlace("~/.screenrc", _PROGRAM),
    RunningPlace("~/.gdbinit", _PROGRAM),
    RunningPlace("~/.lldbinit", _PROGRAM),
    RunningPlace("~/.psqlrc", _PROGRAM),
    RunningPlace("~/.sqliterc", _PROGRAM),
    RunningPlace("~/.irbrc", _PROGRAM),
    RunningPlace("~/.Rprofile", _PROGRAM),
    RunningPlace("~/.curlrc", _PROGRAM),
    RunningPlace("~/.wgetrc", _PROGRAM),
    RunningPlace("~/.condarc", _PROGRAM),
    RunningPlace("~/.ipython", _PROGRAM),
    RunningPlace("~/.jupyter", _PROGRAM),
    RunningPlace("~/.gradle", _PROGRAM),
    RunningPlace("~/.m2", _PROGRAM),
    RunningPlace("~/.cargo/bin", _PROGRAM),
    RunningPlace("~/go/bin", _PROGRAM),
    RunningPlace("~/.vimrc", _PROGRAM),
    RunningPlace("~/.vim", _PROGRAM),
    RunningPlace("~/.config/nvim", _PROGRAM),
    RunningPlace("~/.emacs", _PROGRAM),
    RunningPlace("~/.emacs.d", _PROGRAM),
    RunningPlace("~/.config/emacs", _PROGRAM),
    RunningPlace("~/.config/pip", _PROGRAM),
    RunningPlace("~/.config/uv", _PROGRAM),
    RunningPlace("~/.config/kitty", _PROGRAM),
    RunningPlace("~/.config/alacritty", _PROGRAM),
    RunningPlace("~/.config/wezterm", _PROGRAM),
    RunningPlace("~/.config/helix", _PROGRAM),
    RunningPlace("~/.config/Code", _PROGRAM),
    RunningPlace("~/.local/share/applications", _PROGRAM),
    RunningPlace("~/.config/direnv", _PROGRAM),
    RunningPlace("~/.config/mise", _PROGRAM),
    RunningPlace("~/.config/autostart", _PROGRAM),
    RunningPlace("~/.config/systemd", _PROGRAM),
    RunningPlace("~/Library/LaunchAgents", _PROGRAM),
    RunningPlace("~/.local/bin", _PROGRAM),
    RunningPlace("~/bin", _PROGRAM),
)

DENIED_NAMES = tuple(place.name for place in PLACES if place.treatment == "denied")
"""The names that no file tool writes, at any depth."""

_REPOSITORY = RunningPlace("a repository", "gives its folder the shape of a repository, which git obeys", "denied")
_ENVIRONMENT = RunningPlace("a virtual environment", _PACKAGES, "packages")
_REPOSITORY_ENTRIES = frozenset(
    {"head", "objects", "refs", "commondir", "config", "config.worktree", "hooks", "info", "modules", "worktrees"}
)
_BESIDE_HEAD = ("objects", "refs", "commondir", "config")
_PROGRAM_FOLDERS = frozenset({"bin", "scripts"})


def _by_first_part(rows: tuple[RunningPlace, ...]) -> dict[str, tuple[tuple[tuple[str, ...], RunningPlace], ...]]:
    found: dict[str, list[tuple[tuple[str, ...], RunningPlace]]] = {}
    for row in rows:
        parts = tuple(row.name.removeprefix("~/").casefold().split("/"))
        found.setdefault(parts[0], []).append((parts, row))
    return {name: tuple(listed) for name, listed in found.items()}


_BY_ENDING = tuple((row.name[1:], row) for row in PLACES if row.name.startswith("*"))
_ENDINGS = tuple(ending for ending, _ in _BY_ENDING)
_ANYWHERE = _by_first_part(tuple(row for row in PLACES if not row.name.startswith(("~/", "*"))))


def rows_of(folded: str) -> tuple[tuple[tuple[str, ...], RunningPlace], ...]:
    """Return the rows that a folded name begins in any directory, each with the names that make it whole."""
    if (found := _ANYWHERE.get(folded)) is not None:
        return found
    if folded.endswith(_ENDINGS):
        return tuple(((folded,), row) for ending, row in _BY_ENDING if folded.endswith(ending))
    return ()


_IN_HOME = _by_first_part(tuple(row for row in PLACES if row.name.startswith("~/")))


def find_running_place(path: Path | str, working_dir: Path) -> RunningPlace | None:
    """Return the running place that an absolute path is, or lies below; None for an ordinary file.

    Directories above the working directory do not count: who works below a `.vscode` means to work there.
    """
    text = os.fspath(path)
    start, parts = _split(text, working_dir)
    folded = [part.casefold() for part in parts]
    for place, name in enumerate(folded):
        for wanted, row in rows_of(name):
            if tuple(folded[place : place + len(wanted)]) == wanted:
                return row
        if name in _PROGRAM_FOLDERS and os.path.lexists(os.path.join(start, *parts[:place], "pyvenv.cfg")):  # noqa: PTH118
            return _ENVIRONMENT
    return repository_shape(path, working_dir) or _find_in_home(text)


def repository_shape(path: Path | str, working_dir: Path) -> RunningPlace | None:
    """Return the row of a path by which a directory has, or would get, the shape of a repository; None for others."""
    start, parts = _split(os.fspath(path), working_dir)
    for place, part in enumerate(parts):
        name = part.casefold()
        if name in _REPOSITORY_ENTRIES and _has_shape(os.path.join(start, *parts[:place]), name):  # noqa: PTH118
            return _REPOSITORY
    return None


def _split(text: str, working_dir: Path) -> tuple[str, list[str]]:
    """Return the directory from which names count, and the parts of a path below it."""
    base = str(working_dir).rstrip(os.sep) + os.sep
    start = base if text.startswith(base) else os.sep
    return start, text[len(start) :].split(os.sep)  # noqa: PTH206 - asked for every file that is written


def _has_shape(directory: str, written: str) -> bool:
    """True for a directory that git takes for a repository once an entry of this folded name is in it."""
    if written != "head" and not os.path.lexists(f"{directory}/HEAD"):
        return False
    return written in _BESIDE_HEAD or any(os.path.lexists(f"{directory}/{name}") for name in _BESIDE_HEAD)


def _find_in_home(text: str) -> RunningPlace | None:
    home = _home(os.environ.get("HOME"))
    if not text.startswith(home):
        return None
    folded = tuple(part.casefold() for part in text[len(home) :].split(os.sep))  # noqa: PTH206 - as above
    return next((row for wanted, row in _IN_HOME.get(folded[0], ()) if folded[: len(wanted)] == wanted), None)


@lru_cache(maxsize=8)
def _home(variable: str | None) -> str:
    return os.path.realpath(variable or os.path.expanduser("~")).rstrip(os.sep) + os.sep  # noqa: PTH111
