"""Options that nobody gave: they keep their defaults, without the library that typer checks given values with."""

from typing import Any

from typer.core import TyperOption


class _Option(TyperOption):
    """An option whose default is taken as it is; typer would load pydantic even to look at None."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        if self.required or self.multiple or not self._is_default(value):
            return super().process_value(ctx, value)
        return self.callback(ctx, self, value) if self.callback else value

    def _is_default(self, value: Any) -> bool:
        return value is None or (value is self.default and type(value) is self.type_descriptor.annotation)


def keep_defaults(command: Any, ctx: Any) -> None:
    """Let the options of a command, `--help` included, keep their defaults unchecked."""
    for parameter in command.get_params(ctx):
        if type(parameter) is TyperOption:
            parameter.__class__ = _Option  # typer makes them itself, and has no place to name another class
