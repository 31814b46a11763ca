"""Groups of commands: those of one noun, those that import a command only when it is called, and the root."""

import importlib
import keyword
import shutil
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption


class Section(NamedTuple):
    """Commands that belong together."""

    title: str
    commands: dict[str, str]


SECTIONS = (
    Section(
        "Work",
        {
            "chat": "Chat with an agent; amplifier alone does the same.",
            "run": "Give an agent one task and print its answer.",
            "continue": "Continue the last session of this directory.",
            "session": "List, read, continue and clean up sessions.",
        },
    ),
    Section(
        "Agents",
        {
            "profile": "List, check and compile profiles.",
            "collection": "List, add and update collections of profiles.",
            "bundle": "Register, inspect and use bundles.",
            "plan": "Inspect mount plans, and see where their values come from.",
            "agent": "List and show the agents of a profile or a bundle.",
            "tool": "List the tools of an agent, and call them yourself.",
            "routing": "See which model serves which kind of work, and why.",
            "module": "List, inspect, validate and create modules.",
            "source": "Inspect and fetch sources, and clean up the cache.",
        },
    ),
    Section(
        "Set up",
        {
            "init": "Set up a model: a key, or a server on this machine.",
            "doctor": "Check the installation, and say how to fix what is wrong.",
            "provider": "List providers, store their keys, and test them.",
            "daemon": "Start, inspect and stop the daemon of this home.",
            "store": "Inspect, migrate, verify and back up the session store.",
            "config": "Read and change the settings of this command.",
            "import": "Import settings and bundles from ~/.amplifier.",
            "completion": "Print the completion script for a shell.",
            "version": "Print the version.",
        },
    ),
)

OF_DAEMON = ("cluster", "serve", "service", "token")
"""What only `amplifierd` does."""

COMMANDS: dict[str, str] = {name: line for section in SECTIONS for name, line in section.commands.items()}

_WIDEST = 100
_WHOLE = 500
"""So many characters of a command's first sentence are listed: all, on as many lines as it takes."""


class NounGroup(TyperGroup):
    """The commands of one noun."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            adapt(command, ctx)
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(_WHOLE)) for name, command in commands])


class LazyGroup(NounGroup):
    """Commands that are imported when they are called: `files` has the name of each one's file in `commands/`."""

    files: ClassVar[Mapping[str, str]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict.fromkeys(self.files)  # type: ignore[assignment] # imported by get_command

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.files and self.commands[cmd_name] is None:
            module = importlib.import_module(f"{__package__}.commands.{self.files[cmd_name]}")
            self.commands[cmd_name] = self.chosen(typer.main.get_command(module.app), cmd_name)
        return super().get_command(ctx, cmd_name)

    def chosen(self, found: Any, cmd_name: str) -> Any:
        """Return the command of a name, given what its file has: one command, or several."""
        return found.commands[cmd_name] if isinstance(found, TyperGroup) else found


class RootGroup(LazyGroup):
    """The commands of the table."""

    files: ClassVar[Mapping[str, str]] = {name: f"{name}_" if keyword.iskeyword(name) else name for name in COMMANDS}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        adapt(self, ctx)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in OF_DAEMON:
            ctx.fail(f"'{args[0]}' is a command of the daemon: amplifierd {' '.join(args)}")
        return super().resolve_command(ctx, args)

    def chosen(self, found: Any, cmd_name: str) -> Any:
        found.name = cmd_name
        return found

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, COMMANDS))
        for section in SECTIONS:
            with formatter.section(section.title):
                formatter.write_dl([(f"{name:<{width}}", line) for name, line in section.commands.items()])


def new_group(help: str, *lines: str, cls: type[NounGroup] = NounGroup) -> typer.Typer:
    """Return the group of a noun; `lines` are its examples."""
    return typer.Typer(
        cls=cls,
        help=help,
        epilog=examples(*lines) if lines else None,
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings=context_settings(),
    )


def single_command() -> typer.Typer:
    """Return an app for a single command, without a group."""
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


class _Option(TyperOption):
    """An option whose default is taken as it is; typer would load pydantic even to look at None."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        if self.required or self.multiple or not self._is_default(value):
            return super().process_value(ctx, value)
        return self.callback(ctx, self, value) if self.callback else value

    def _is_default(self, value: Any) -> bool:
        return value is None or (value is self.default and type(value) is self.type_descriptor.annotation)

    def display_type_rich(self, ctx: Any) -> str:
        return self.metavar or _placeholder(self)


class _Argument(TyperArgument):
    """An argument in capitals, `[NAME]` where it can be left out."""

    def _rich_display_name(self) -> str:
        return self.metavar or self.name.upper()

    def _usage_display_name(self) -> str:
        name = self._rich_display_name()
        return f"{name if self.required else f'[{name}]'}{'' if self.nargs == 1 else '...'}"

    def display_type_rich(self, ctx: Any) -> str:
        return _placeholder(self) if self.type_descriptor.is_choice else ""


def _placeholder(parameter: TyperOption | TyperArgument) -> str:
    """Return what stands for a value in the help."""
    kind = parameter.type_descriptor
    if kind.is_choice:
        return "|".join(map(str, kind.choices or ()))
    if kind.annotation in (int, float):
        return "N"
    return "PATH" if kind.is_path or kind.is_list else "TEXT"


def adapt(command: Any, ctx: Any) -> None:
    """Make the parameters of a command ours; typer makes them itself, and has no place to name another class."""
    for parameter in command.get_params(ctx):
        if type(parameter) is TyperOption:
            parameter.__class__ = _Option
        elif type(parameter) is TyperArgument:
            parameter.__class__ = _Argument
