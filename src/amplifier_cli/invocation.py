"""What was said before the command's name, `amplifier --home DIR …`: the same for all commands."""

from dataclasses import dataclass
from pathlib import Path

import typer


@dataclass(frozen=True)
class Invocation:
    """The options of the command itself; `home` is None where the environment names it."""

    home: Path | None = None
    debug: bool = False


def invocation_of(ctx: typer.Context) -> Invocation:
    found = ctx.find_root().obj
    return found if isinstance(found, Invocation) else Invocation()
