"""A tool that always answers."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from amplifier_core import ToolResult

from .runs import answered


class AnsweringTool(ABC):
    """A tool that says in `answer` what it does, and may raise there: `execute` returns a result whatever happens."""

    name: ClassVar[str]

    if TYPE_CHECKING:  # a class attribute, an attribute or a property, as the tool has it

        @property
        def input_schema(self) -> dict[str, Any]: ...

    def get_schema(self) -> dict[str, Any]:
        """Return the schema of the input."""
        return self.input_schema

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Do what the input asks for; a failure is a result, too."""
        return await answered(self.name, self.answer(input))

    @abstractmethod
    async def answer(self, given: Any) -> ToolResult:
        """Return the result for an unchecked input; a `ToolFailure` tells what is wrong."""
