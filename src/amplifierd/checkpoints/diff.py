"""The difference between two trees as unified text, made by git from our own store alone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from amplifier_system.processes import ProcessTree, reading
from amplifierd.exceptions import CheckpointError

from .manifest import Difference

LARGEST_DIFF = 1024 * 1024  # bytes
_TIMEOUT_S = 30.0
_PIECE = 65536

_SETTINGS = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.attributesFile=/dev/null", "gc.auto=0")
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
}
_COMMAND = ("diff-tree", "-r", "-p", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--full-index")


async def diff_trees(store: Path, before: str, after: str) -> tuple[str, bool]:
    """Return the difference between two trees of a store, and whether it was cut off.

    Git runs with an environment and a configuration of our own, far from the user's.

    Raises:
        CheckpointError: git is not installed, failed, or took too long.
    """
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    command = ["git", f"--git-dir={store}", *settings, *_COMMAND, before, after]
    environment = {**_ENVIRONMENT, "PATH": os.environ.get("PATH", os.defpath)}
    try:
        git = await ProcessTree.start(command, environment=environment, cwd=store)
    except FileNotFoundError as error:
        raise CheckpointError("the difference cannot be shown: the command 'git' is not installed") from error
    try:
        async with asyncio.timeout(_TIMEOUT_S), git, reading(git.stdout) as output, reading(git.stderr) as errors:
            data = await _read_up_to(output, LARGEST_DIFF + 1)
            is_cut = len(data) > LARGEST_DIFF
            if not is_cut and await git.wait() != 0:
                words = (await _read_up_to(errors, _PIECE)).decode("utf-8", "replace").strip()
                raise CheckpointError(f"the difference cannot be shown: git says {words!r}")
    except TimeoutError:
        raise CheckpointError(f"the difference cannot be shown: git took longer than {_TIMEOUT_S:g} s") from None
    return _text(data[:LARGEST_DIFF], is_cut), is_cut


async def _read_up_to(stream: asyncio.StreamReader, limit: int) -> bytes:
    data = bytearray()
    while len(data) < limit and (piece := await stream.read(min(_PIECE, limit - len(data)))):
        data += piece
    return bytes(data)


def _text(data: bytes, is_cut: bool) -> str:
    if not is_cut:
        return data.decode("utf-8", "replace")
    whole_lines = data[: data.rfind(b"\n") + 1].decode("utf-8", "replace")
    return f"{whole_lines}... the difference is longer than {LARGEST_DIFF} bytes and was cut off here\n"


def describe_modes(changed: Sequence[Difference]) -> str:
    """Return, in the form of git, the changes that git does not keep: permissions, and directories."""
    pieces = []
    for each in changed:
        before, after = each.before, each.after
        sides = [side for side in (before, after) if side is not None]
        is_git_blind = all(side.kind == "directory" for side in sides) or (
            before is not None
            and after is not None
            and before.git_mode == after.git_mode
            and before.full_mode != after.full_mode
        )
        if not is_git_blind:
            continue
        lines = [f"diff --git a/{each.path} b/{each.path}"]
        if before is None and after is not None:
            lines.append(f"new directory mode {after.full_mode:06o}")
        elif after is None and before is not None:
            lines.append(f"deleted directory mode {before.full_mode:06o}")
        elif before is not None and after is not None:
            lines += [f"old mode {before.full_mode:06o}", f"new mode {after.full_mode:06o}"]
        pieces.append("\n".join(lines) + "\n")
    return "".join(pieces)
