"""`amplifier version`."""

import json
import platform
from typing import Annotated

import typer

from amplifier_cli.command_group import examples, single_command
from amplifier_cli.version import version as current

app = single_command()


@app.command(epilog=examples("amplifier version", "amplifier version --json"))
def version(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print the version."""
    if as_json:
        typer.echo(json.dumps({"amplifier": current(), "python": platform.python_version()}))
    else:
        typer.echo(f"amplifier {current()}")
