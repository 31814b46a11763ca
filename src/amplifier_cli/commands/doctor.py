"""`amplifier doctor`: what is wrong, and how to fix it."""

from __future__ import annotations

from typing import Annotated

import typer

from amplifier_cli.command_group import examples, single_command
from amplifier_cli.examination import Finding, examine
from amplifier_cli.exit_codes import ExitCode
from amplifier_cli.invocation import invocation_of
from amplifier_cli.open_home import in_home
from amplifier_cli.options import Json
from amplifier_cli.render import can_show, styled, write, write_json
from amplifierd.home import Home

app = single_command()

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}


@app.command(epilog=examples("amplifier doctor", "amplifier doctor --fix", "amplifier doctor --json"))
def doctor(
    ctx: typer.Context,
    fix: Annotated[
        bool, typer.Option("--fix", help="Apply the safe fixes: compile stale profiles, repair sessions.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check this installation and its home, and say how to fix what is wrong.

    Exits with 1 if there is an error.
    """

    async def work(home: Home) -> ExitCode:
        findings: list[Finding] = []
        async for finding in examine(home, invocation_of(ctx)):
            findings.append(finding)
            if not as_json:
                _write(finding)
            if fix and finding.repair is not None:
                await finding.repair()
                if not as_json:
                    write("    fixed")
        if as_json:
            keys = ("check", "grade", "message", "fix")
            write_json([{key: getattr(finding, key) for key in keys} for finding in findings])
        return ExitCode.FAILURE if any(finding.grade == "error" for finding in findings) else ExitCode.OK

    raise typer.Exit(in_home(ctx, work))


def _write(finding: Finding) -> None:
    mark, colour = _MARKS[finding.grade]
    mark = mark if can_show(mark) else finding.grade
    write(f"{styled(mark, colour)} {finding.check}: {finding.message}")
    if finding.fix:
        write(f"    fix: {finding.fix}")
