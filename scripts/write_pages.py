"""Write the generated pages of the documentation; with --check only say which are old."""

import contextlib
import importlib
import io
import json
import keyword
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["COLUMNS"] = "80"  # help is as wide as the terminal, but in the documentation

import typer

from amplifier_cli.command_table import SECTIONS
from amplifier_cli.config import AppConfig, variable_of
from amplifier_cli.exit_codes import MEANINGS
from amplifier_cli.main import main
from amplifier_system.homes import PREFIX
from amplifierd import Settings, open_home
from amplifierd.app import create_app
from amplifierd.settings_layers import keys_of

DOCS = Path(__file__).parents[1] / "docs"

SETTINGS_HEAD = """\
# Settings

<!-- Generated from `amplifierd/settings.py`: make pages -->

What the owner of a home can set. A value comes from `open_home(overrides={…})`, else from an environment variable, else
from `config/daemon.yaml`, else it is the default. A key that is not in this table has no effect and is reported in
`home.settings.warnings`; a value that cannot be understood is an error that names its file and key.

| Key | Default | Variable | What it does |
|---|---|---|---|
"""

SETTINGS_FOOT = """
A list is written as JSON or with commas between its items, a switch as `1`, `true`, `yes` or `on`. In the file, keys
with a dot are nested:

```yaml
offline: false
startup:
  auto_compile: true
```
"""

COMMAND_HEAD = """\
# The command `amplifier`

<!-- Generated from `amplifier_cli`: make pages -->

`amplifier` runs agents in a terminal. It works in the current directory and keeps everything else in one home,
`~/.amplifierd` unless `AMPLIFIERD_HOME` or `--home` names another.

- Wherever something is listed or shown, `--json` prints it for programs.
- A profile is named by its id or its name alone, a session by its id, the beginning of it, its name or the word `last`.
- An error says what is wrong, where, and what to type; `amplifier --debug COMMAND` shows the traceback as well.
- What the library logs is in `state/logs/amplifierd/command.log` of the home.

## Chat

Enter sends a line. While the agent works, Enter steers it and Alt-Enter queues the next prompt; otherwise Alt-Enter
begins a new line. `@path` brings in a file, Tab completes, Ctrl-X Ctrl-E opens an editor. Before something risky you
are asked: `y` allows it once, `a` for the rest of the session, `n REASON` tells the agent why not. Ctrl-C stops the
turn when the tools that run are done, a second one at once; Ctrl-D ends the chat. A session can be continued whatever
ended it: `amplifier continue`.

What an agent does is a line with a number: Ctrl-O shows the last one in full, `/expand N` another. Agents that it
delegates to are a tree above the input line, each with what it does and what it used so far. An image file that you
drag into the terminal, or whose path you paste, goes with the prompt, and Ctrl-V pastes the image in the clipboard
(with `wl-paste`, `xclip` or `pngpaste`); it is sent while its mark, `[image 1: screen.png]`, is in the line. When a
long turn ends or the agent waits for an answer, you are called: by the bell, or with `notify: desktop` by
`notify-send`, or over ssh by the terminal itself, where it knows OSC 9 or OSC 777.

A file `.amplifier/commands/NAME.md` of a trusted project, or `config/commands/NAME.md` of the home, is the command
`/NAME`; `$ARGUMENTS` in it stands for what follows.

| Command | What it does |
|---|---|
"""

CODES_HEAD = """
## Exit codes

| Code | Meaning |
|---|---|
"""

KEYS_HEAD = """
## Settings

A value comes from a flag, else from the environment, else from `.amplifier/settings.local.yaml`,
`.amplifier/settings.yaml`, or `config/settings.yaml` of the home, else it is the default; `amplifier config list` shows
which. The files of a project count once its directory is trusted: `amplifier config trust`, or the answer to the
question with which a chat begins.

| Key | Default | Variable | What it is |
|---|---|---|---|
"""


PROJECT = """
## A project

What a project brings along is in `.amplifier`, in its root or in the nearest directory above the current one. It can
choose which code runs, so none of it counts before the directory is trusted: you are asked once, at a terminal, and
`amplifier config trust` and `amplifier config trust --remove` change the answer. `AGENTS.md` is read in any case.

| File | What it is |
|---|---|
| `settings.yaml`, `settings.local.yaml` | settings, as above; the second is for you alone and belongs in `.gitignore` |
| `overlay.md` | what changes about every agent here: `tools`, `hooks`, `providers`, `session`, `agents`, `exclude` |
| `overlays/COLLECTION/PROFILE.md` | the same for one profile, laid over the former |
| `modules/MODULE/` | modules of the project, named by their path: `source: ./modules/hooks-note` |
| `commands/NAME.md` | the command `/NAME` of a chat |

An overlay has the front matter of a profile, without `profile`. Flags count more than it does, and it can neither take
out a module that a profile requires nor allow what its policy forbids. A module of the project lies in `.amplifier` and
uses packages that are installed; what is to be fetched and locked belongs in a profile. `amplifier plan show` shows
what comes of it.

```markdown
---
hooks:
- module: hooks-note
  source: ./modules/hooks-note
exclude:
  tools: [tool-web]
---
```
"""


ENDPOINTS = "<!-- Below this line: generated from the endpoints of `amplifierd`, make pages -->\n"


def http_page() -> str:
    """Return the page about the HTTP API: its text as it is, and every endpoint."""
    text, _, _ = (DOCS / "http-api.md").read_text(encoding="utf-8").partition(ENDPOINTS)
    with tempfile.TemporaryDirectory() as folder:
        described = create_app(home=open_home(folder)).openapi()
    rows = [
        f"| {method.upper()} `{path}` | {operation['description'].splitlines()[0]} |\n"
        for path, operations in sorted(described["paths"].items())
        for method, operation in operations.items()
    ]
    head = "\n| Endpoint | What it does |\n|---|---|\n"
    return text + ENDPOINTS + head + "".join(rows)


def settings_page() -> str:
    rows = []
    for path, info in keys_of(Settings):
        variable = f"{PREFIX}{'__'.join(path)}".upper()
        rows.append(f"| `{'.'.join(path)}` | `{_shown(info.default)}` | `{variable}` | {info.description} |\n")
    return SETTINGS_HEAD + "".join(rows) + SETTINGS_FOOT


def command_page() -> str:
    from amplifier_cli.chat.slash_commands import COMMANDS as CHAT

    usages = {name: f"/{name} {command.usage}".strip().replace("|", "\\|") for name, command in CHAT.items()}
    chat = [f"| `{usages[name]}` | {command.help} |\n" for name, command in CHAT.items()]
    codes = [f"| {int(code)} | {meaning} |\n" for code, meaning in MEANINGS.items()]
    keys = [
        f"| `{key}` | `{_shown(info.default)}` | `{variable_of(key)}` | {info.description} |\n"
        for key, info in AppConfig.model_fields.items()
    ]
    return "".join([COMMAND_HEAD, *chat, CODES_HEAD, *codes, KEYS_HEAD, *keys, PROJECT, *_helps()])


def _helps() -> Iterator[str]:
    """Yield the help of the command itself and of all its commands, as it is printed."""
    yield f"\n## Help\n\n```text\n{_help()}```\n"
    for section in SECTIONS:
        for name in section.commands:
            yield f"\n### amplifier {name}\n\n```text\n{_help(name)}```\n"
            for below in _below(name):
                yield f"\n#### amplifier {name} {below}\n\n```text\n{_help(name, below)}```\n"


def _below(name: str) -> list[str]:
    file = f"{name}_" if keyword.iskeyword(name) else name
    command = typer.main.get_command(importlib.import_module(f"amplifier_cli.commands.{file}").app)
    return [*getattr(command, "commands", {})]


def _help(*names: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main([*names, "--help"])
    return "".join(f"{line.rstrip()}\n" for line in printed.getvalue().splitlines())


def _shown(default: Any) -> str:
    if default is None:
        return "none"
    return str(default) if isinstance(default, str | Path) else json.dumps(default)


PAGES: dict[Path, Callable[[], str]] = {
    DOCS / "settings.md": settings_page,
    DOCS / "command.md": command_page,
    DOCS / "http-api.md": http_page,
}


if __name__ == "__main__":
    old = [page for page, write in PAGES.items() if not page.exists() or page.read_text(encoding="utf-8") != write()]
    if "--check" in sys.argv:
        sys.exit(f"{', '.join(map(str, old))} is old: run make pages" if old else 0)
    for page in old:
        page.write_text(PAGES[page](), encoding="utf-8")
