"""Groups of commands: the root, which imports a command only when it is called, and those of one noun."""

import importlib
import keyword
import shutil
from typing import Any

import typer
from typer.core import TyperGroup

from .command_table import COMMANDS, SECTIONS
from .unset_options import keep_defaults

_WIDEST = 100


class RootGroup(TyperGroup):
    """The commands of the table, each imported from `commands/<name>.py` when it is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment] # imported by get_command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        keep_defaults(self, ctx)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if self.commands[cmd_name] is None:
            file = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
            module = importlib.import_module(f"{__package__}.commands.{file}")
            command = typer.main.get_command(module.app)
            command.name = cmd_name
            keep_defaults(command, ctx)
            self.commands[cmd_name] = command
        return self.commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, COMMANDS))
        for section in SECTIONS:
            with formatter.section(section.title):
                formatter.write_dl([(f"{name:<{width}}", line) for name, line in section.commands.items()])


class NounGroup(TyperGroup):
    """The commands of one noun."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            keep_defaults(command, ctx)
        return command


def new_group(help: str, *lines: str) -> typer.Typer:
    """Return the group of a noun; `lines` are its examples."""
    return typer.Typer(
        cls=NounGroup,
        help=help,
        epilog=examples(*lines) if lines else None,
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings=context_settings(),
    )


def single_command() -> typer.Typer:
    """Return what holds one command that is no group."""
    return typer.Typer(
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings=context_settings(),
    )


def examples(*lines: str) -> str:
    """Return examples as the end of a help text; the first character keeps their lines apart."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def context_settings() -> dict[str, Any]:
    """Return what holds for all commands: `-h`, and help as wide as the terminal, within reason."""
    columns = shutil.get_terminal_size().columns
    return {"help_option_names": ["-h", "--help"], "max_content_width": min(columns, _WIDEST)}
