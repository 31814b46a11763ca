"""The commands a shell script is made of."""

from dataclasses import dataclass, field

from .shell_word import Word


@dataclass(slots=True)
class Redirect:
    """A redirection; a here-document has a `body`, and its target says whether that is taken as it stands."""

    operator: str
    descriptor: str = ""
    target: Word = field(default_factory=lambda: Word(""))
    body: str | None = None

    @property
    def feeds_stdin(self) -> bool:
        return self.operator.startswith("<") and self.descriptor in ("", "0")

    @property
    def writes(self) -> bool:
        return ">" in self.operator


@dataclass(slots=True)
class SimpleCommand:
    """A program with its arguments; `is_piped` when its input comes from a pipe, its own or one around it."""

    words: list[Word] = field(default_factory=list)
    assignments: list[Word] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    is_piped: bool = False

    @property
    def stdin(self) -> Redirect | None:
        """The redirection that its input comes from."""
        return next((one for one in reversed(self.redirects) if one.feeds_stdin), None)

    @property
    def settings(self) -> list[Word]:
        """The variables that are set for the program, by the shell or by a wrapper such as `env`."""
        return [*self.assignments, *(word for word in self.words if word.is_assignment)]

    @property
    def is_empty(self) -> bool:
        return not (self.words or self.assignments or self.redirects)


@dataclass(slots=True)
class Script:
    """What a script runs, and the operators it is held together by."""

    commands: list[SimpleCommand] = field(default_factory=list)
    operators: set[str] = field(default_factory=set)
