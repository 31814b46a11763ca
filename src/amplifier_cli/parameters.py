"""Options and arguments as this command has them: unset ones cost nothing, and help shows them in one way."""

from typing import Any

from typer.core import TyperArgument, TyperOption


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
