"""What like requests have in common, so that an answer can stand for all of them."""

import os
from collections.abc import Mapping
from typing import Any

from .commands import BASH, command_of, is_simple, program_of

_FILE_TOOLS = frozenset({"write_file", "edit_file"})


# Programs that run what they are given: of these, only the very same command is alike.
_RUNNERS = frozenset(
    {
        ".",
        "ash",
        "at",
        "awk",
        "bash",
        "builtin",
        "bun",
        "bunx",
        "busybox",
        "chroot",
        "command",
        "crontab",
        "csh",
        "dash",
        "deno",
        "doas",
        "docker",
        "ed",
        "emacs",
        "env",
        "eval",
        "ex",
        "exec",
        "expect",
        "find",
        "fish",
        "flock",
        "gawk",
        "gdb",
        "ionice",
        "ksh",
        "kubectl",
        "less",
        "ltrace",
        "lua",
        "man",
        "mawk",
        "more",
        "nano",
        "nice",
        "node",
        "nohup",
        "npm",
        "npx",
        "nsenter",
        "nvim",
        "open",
        "parallel",
        "perl",
        "php",
        "pipx",
        "pnpm",
        "pnpx",
        "podman",
        "poetry",
        "rsync",
        "ruby",
        "scp",
        "script",
        "sed",
        "setsid",
        "sh",
        "source",
        "ssh",
        "stdbuf",
        "strace",
        "su",
        "sudo",
        "systemd-run",
        "tar",
        "tclsh",
        "tcsh",
        "time",
        "timeout",
        "unshare",
        "uv",
        "uvx",
        "vi",
        "vim",
        "watch",
        "xargs",
        "xdg-open",
        "yarn",
        "zip",
        "zsh",
    }
)
_RUNNER_PREFIXES = ("python", "pypy", "perl", "ruby", "lua", "php")


def remember_key(tool_name: str, tool_input: Mapping[str, Any]) -> str | None:
    """Return the key under which an answer is remembered, None for a request that is like no other.

    Files go by their directory, commands by their first two words, every other tool by its name. An interpreter or a
    wrapper can be made to do anything, so with those an answer covers the very same command only.
    """
    if tool_name == BASH:
        command = command_of(tool_input)
        return _command_key(command) if is_simple(command) else None
    if tool_name not in _FILE_TOOLS:
        return tool_name
    path = next((tool_input[key] for key in ("file_path", "path") if tool_input.get(key)), None)
    if not isinstance(path, str):
        return None
    directory = os.path.dirname(os.path.normpath(path))  # noqa: PTH120 - of the text; no file is looked at
    return f"{tool_name}:{directory.rstrip('/')}/" if directory else f"{tool_name}:."


def _command_key(command: str) -> str:
    words = command.split()
    program = program_of(words[0])
    runs_others = program in _RUNNERS or program.startswith(_RUNNER_PREFIXES)
    has_own_setting = "=" in words[0] or (program == "git" and words[1:2] and words[1].startswith("-"))
    if runs_others or has_own_setting or any(character in words[0] for character in "'\""):
        return f"{BASH}={command.strip()}"
    return f"{BASH}:{' '.join(words[:2])}"
