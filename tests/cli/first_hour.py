"""The mistakes of a first hour: how each is made, what is typed, and what has to be said about it.

`docs/troubleshooting.md` lists them by their titles, with the same words.
"""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OFFLINE = "extends: foundation/offline"


@dataclass(frozen=True)
class Mistake:
    """`says` are parts of what is told, in their order; `WORK` and `HOME` in them are the test's directories."""

    title: str
    arguments: tuple[str, ...]
    says: tuple[str, ...]
    code: int = 2
    make: Callable[[Path, Path], None] = lambda home, work: None
    offline: bool = True


def profile(text: str, *, extends: str = OFFLINE) -> Callable[[Path, Path], None]:
    """Return what writes the profile `mine` into a home; `text` are the lines of its header from the third on."""
    header = f"---\nprofile: {{name: mine, version: 1.0.0, {extends}, schema_version: 2}}\n{text}\n---\nHelp.\n"
    return file("HOME/config/profiles/mine.md", header)


def file(name: str, text: str) -> Callable[[Path, Path], None]:
    def make(home: Path, work: Path) -> None:
        path = Path(name.replace("HOME", str(home)).replace("WORK", str(work)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("WORK", str(work)))

    return make


def plan(**parts: Any) -> Callable[[Path, Path], None]:
    return file("WORK/plan.json", json.dumps(parts))


def tool_that_needs(package: str) -> Callable[[Path, Path], None]:
    """Return what writes a module that needs a package, and a profile that uses it."""
    about = f'[project]\nname = "amplifier-module-tool-own"\nversion = "0.1.0"\ndependencies = ["{package}"]\n'
    parts = [
        file("WORK/tool-own/pyproject.toml", about),
        file("WORK/tool-own/amplifier_module_tool_own/__init__.py", f"import {package.replace('-', '_')}\n"),
        profile("tools:\n- module: tool-own\n  source: WORK/tool-own"),
    ]

    def make(home: Path, work: Path) -> None:
        for part in parts:
            part(home, work)

    return make


def repository_without_the_ref(home: Path, work: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    (work / "repo").mkdir()
    for step in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "Begin"], ["tag", "v1.0"]):
        subprocess.run([*git, *step], cwd=work / "repo", check=True)
    profile("tools:\n- module: tool-own\n  source: git+file://WORK/repo@v1")(home, work)


RUN = ("run", "Hi")
MINE = ("run", "--profile", "mine", "Hi")
PLAN = ("run", "--plan", "plan.json", "Hi")
LOOP = {"orchestrator": "loop-basic", "context": "context-simple"}
MOCK = [{"module": "provider-mock"}]
CHECK = "fix: correct it, then check it: amplifier profile validate local/mine"

MISTAKES = (
    Mistake(
        "The YAML of a profile is broken",
        MINE,
        ("Profile local/mine is not valid", "HOME/config/profiles/mine.md:", "line 5", CHECK),
        1,
        profile("tools:\n- module: [tool-bash"),
    ),
    Mistake(
        "The YAML of a bundle is broken",
        ("run", "--bundle", "./bundle.md", "Hi"),
        ("WORK/bundle.md is not valid YAML: line 5", "fix: correct that line"),
        1,
        file("WORK/bundle.md", "---\nbundle: {name: b, version: 1.0.0}\ntools:\n- module: [x\n---\nHelp.\n"),
    ),
    Mistake(
        "The YAML of the settings is broken",
        RUN,
        ("HOME/config/settings.yaml is not YAML: line 2", "fix: correct that line, or remove the file"),
        make=file("HOME/config/settings.yaml", "profile: [x\n"),
    ),
    Mistake(
        "The YAML of daemon.yaml is broken",
        RUN,
        ("HOME/config/daemon.yaml is not YAML: line 2", "fix: correct that line, or move the file away"),
        make=file("HOME/config/daemon.yaml", "offline: [x\n"),
    ),
    Mistake(
        "A key of the settings is misspelled",
        RUN,
        ("warning: HOME/config/settings.yaml: profil is not a setting", "did you mean profile?"),
        0,
        file("HOME/config/settings.yaml", "profil: x\n"),
    ),
    Mistake(
        "A key of daemon.yaml is misspelled",
        RUN,
        ("warning: ", "HOME/config/daemon.yaml", "offlin"),
        0,
        file("HOME/config/daemon.yaml", "offlin: true\n"),
    ),
    Mistake(
        "The database of the sessions cannot be reached",
        ("session", "list"),
        ("the sessions in postgresql://127.0.0.1:1/db cannot be reached: ", "fix: check that PostgreSQL runs there"),
        1,
        file("HOME/config/daemon.yaml", "store: postgresql://127.0.0.1:1/db\n"),
    ),
    Mistake(
        "A value of the settings is of the wrong kind",
        RUN,
        ("HOME/config/settings.yaml: max_cost: ", "got 'lots'", "fix: correct the value; amplifier config list"),
        make=file("HOME/config/settings.yaml", "max_cost: lots\n"),
    ),
    Mistake(
        "A section of a profile is misspelled",
        MINE,
        ("warning: HOME/config/profiles/mine.md:3: toolz: Unknown key 'toolz'", "correct its name"),
        0,
        profile("toolz:\n- module: tool-bash"),
    ),
    Mistake(
        "An entry of a profile has no module",
        MINE,
        ("warning: HOME/config/profiles/mine.md:4: tools[0]: ", "has no 'module'", "add module: <id>"),
        0,
        profile("tools:\n- modul: tool-bash"),
    ),
    Mistake(
        "A key of a module's configuration is misspelled",
        MINE,
        (
            "warning: HOME/config/profiles/mine.md:5: tools[tool-search].config.max_resluts is not a key",
            "of tool-search and has no effect",
            "did you mean max_results",
        ),
        0,
        profile("tools:\n- module: tool-search\n  config: {max_resluts: 10}"),
    ),
    Mistake(
        "A key of a module's configuration is misspelled in a plan",
        PLAN,
        ("warning: session.context.config.max_token is not a key", "did you mean max_tokens"),
        0,
        plan(session={**LOOP, "context": {"module": "context-simple", "config": {"max_token": 9000}}}, providers=MOCK),
    ),
    Mistake(
        "A profile extends one that does not exist",
        MINE,
        ("HOME/config/profiles/mine.md:2: profile.extends: ", "'foundation/oflin' not found", CHECK),
        1,
        profile("", extends="extends: foundation/oflin"),
    ),
    Mistake(
        "A module does not exist",
        MINE,
        ("tools/tool-bsh", "is not installed", "fix: did you mean tool-bash? Else give it a source"),
        1,
        profile("tools:\n- module: tool-bsh"),
    ),
    Mistake(
        "A module's path does not exist",
        MINE,
        ("tools/tool-own: File not found: ", "nowhere does not exist", "fix: correct the path where it is written"),
        1,
        profile("tools:\n- module: tool-own\n  source: ./nowhere"),
    ),
    Mistake(
        "A module needs a package that does not exist",
        MINE,
        ("warning: dependency-missing: tool-own: no-such-package", "fix: "),
        0,
        tool_that_needs("no-such-package"),
    ),
    Mistake(
        "A ref does not exist",
        MINE,
        ("tools/tool-own: Failed to clone ", "no ref 'v1' (nearest: v1.0)", "fix: write @v1.0 after the address"),
        1,
        repository_without_the_ref,
    ),
    Mistake(
        "There is no network",
        MINE,
        ("offline, and git+https://127.0.0.1:9/org/repo@v1 is not in the cache", "fix: ", "amplifier source fetch"),
        1,
        profile("tools:\n- module: tool-own\n  source: git+https://127.0.0.1:9/org/repo@v1"),
    ),
    Mistake(
        "A server cannot be reached",
        MINE,
        ("tools/tool-own: Failed to clone https://127.0.0.1:9/org/repo", "fix: check the address and the network"),
        1,
        profile("tools:\n- module: tool-own\n  source: git+https://127.0.0.1:9/org/repo@v1"),
        offline=False,
    ),
    Mistake(
        "There is no key",
        ("run", "--profile", "base", "Hi"),
        ("No providers mounted", "set ANTHROPIC_API_KEY", "fix: store a key: amplifier provider add anthropic"),
        1,
    ),
    Mistake(
        "There is no key to try",
        ("provider", "test", "anthropic"),
        ("anthropic cannot be started", "no API key", "fix: amplifier provider add anthropic stores a key"),
        1,
    ),
    Mistake(
        "A profile is misspelled",
        ("run", "--profile", "ofline", "Hi"),
        ("there is no profile 'ofline'", "fix: did you mean offline?"),
    ),
    Mistake(
        "A provider is misspelled",
        ("provider", "test", "antropic"),
        ("there is no provider 'antropic'", "fix: did you mean anthropic?"),
    ),
    Mistake(
        "A bundle does not exist",
        ("run", "--bundle", "./nothing.md", "Hi"),
        ("WORK/nothing.md does not exist", "fix: correct the path"),
        1,
    ),
    Mistake(
        "A name is not a bundle",
        ("run", "--bundle", "nothing", "Hi"),
        ("there is no bundle 'nothing'", "fix: amplifier bundle list shows them; amplifier bundle add adds one"),
    ),
    Mistake(
        "A command is misspelled",
        ("sesion", "list"),
        ("Try 'amplifier -h' for help", "No such command 'sesion'. Did you mean 'session'"),
    ),
    Mistake(
        "An option is misspelled",
        ("run", "--profil", "x", "Hi"),
        ("Try 'amplifier run -h' for help", "No such option: --profil", "--profile"),
    ),
    Mistake(
        "There is no prompt",
        ("run",),
        ("there is no prompt", 'fix: say what to do: amplifier run "'),
    ),
    Mistake(
        "A session does not exist",
        ("run", "--resume", "12345678", "Hi"),
        ("there is no session '12345678'", "fix: amplifier session list shows them"),
    ),
    Mistake(
        "An id is not one of a session",
        ("session", "show", "../../etc"),
        ("there is no session '../../etc'", "fix: amplifier session list shows them"),
    ),
    Mistake(
        "There is no session to continue",
        ("run", "--resume", "last", "Hi"),
        ("there is no session yet", "fix: start one: amplifier"),
    ),
    Mistake(
        "A plan is not a plan",
        PLAN,
        ("plan.json does not contain a mount plan", "fix: a plan is a mapping"),
        make=file("WORK/plan.json", "[1, 2]"),
    ),
    Mistake(
        "A plan is not JSON",
        PLAN,
        ("plan.json is neither JSON nor YAML: ", "line 2", "fix: correct that line"),
        make=file("WORK/plan.json", "{\n"),
    ),
    Mistake(
        "A plan lacks what every plan has",
        PLAN,
        ("The mount plan cannot be used", "session must be a mapping", "fix: a plan needs session.orchestrator"),
        1,
        plan(tools=[]),
    ),
    Mistake(
        "A plan's tool does not exist",
        PLAN,
        ("warning: tool-bsh is missing: ", "is not installed, and it has no source", "fix: correct its name"),
        0,
        plan(session=LOOP, providers=MOCK, tools=[{"module": "tool-bsh"}]),
    ),
    Mistake(
        "A plan's orchestrator does not exist",
        PLAN,
        ("the session cannot be started", "'loop-basc' is not installed", "fix: "),
        1,
        plan(session={**LOOP, "orchestrator": "loop-basc"}, providers=MOCK),
    ),
    Mistake(
        "An image is not one",
        ("run", "What is this?", "-f", "photo.png"),
        ("photo.png is not image/png", "fix: rename it to match its format"),
        make=file("WORK/photo.png", "not an image"),
    ),
    Mistake(
        "A file is neither text nor an image",
        ("run", "What is this?", "-f", "data.bin"),
        ("data.bin is neither text nor an image", "fix: convert it"),
        make=lambda home, work: void((work / "data.bin").write_bytes(b"\xff\xfe\x00")),
    ),
)


def void(_: object) -> None: ...
