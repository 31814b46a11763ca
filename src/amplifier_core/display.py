"""How the kernel speaks to a person: an application gives the session a `DisplaySystem`."""

from typing import Literal, Protocol, runtime_checkable


@runtime_checkable
class DisplaySystem(Protocol):
    def show_message(self, message: str, level: Literal["info", "warning", "error"], source: str = "hook") -> None:
        """Show `message`; `source` names who sent it."""
        ...
