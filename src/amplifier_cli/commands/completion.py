"""`amplifier completion`: scripts with which a shell completes commands and options."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined] # there is no other way to it

from amplifier_cli.command_group import examples, single_command

app = single_command()


@app.command(
    epilog=examples(
        "amplifier completion bash >> ~/.bashrc",
        "amplifier completion zsh > ~/.zfunc/_amplifier",
        "amplifier completion fish > ~/.config/fish/completions/amplifier.fish",
    )
)
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="The shell.", show_default=False)],
) -> None:
    """Print the completion script for a shell."""
    typer.echo(get_completion_script(prog_name="amplifier", complete_var="_AMPLIFIER_COMPLETE", shell=shell))
