"""Text that arrives in pieces, cut into parts of markdown that can be drawn."""

from __future__ import annotations

_FENCES = ("```", "~~~")


class AnswerStream:
    """Collects pieces of an answer; `feed` returns the parts that are complete, `finish` what is left.

    A part ends with an empty line outside of a code block. The pieces of some providers lose spaces or come late; the
    whole text, which is given at the end, is what counts.
    """

    def __init__(self) -> None:
        self._taken = ""
        self._rest = ""

    @property
    def preview(self) -> str:
        """The last line of what has arrived and is not drawn yet."""
        return self._rest.strip().rpartition("\n")[2]

    def feed(self, piece: str) -> list[str]:
        self._rest += piece
        end = _last_end(self._rest)
        if not end:
            return []
        part, self._rest = self._rest[:end], self._rest[end:]
        self._taken += part
        return [part.strip("\n")] if part.strip() else []

    def finish(self, whole: str | None = None) -> list[str]:
        """Return what was not drawn yet, and begin anew. `whole` is the complete text where it is known."""
        rest = self._rest
        if whole is not None:
            rest = whole[len(self._taken) :] if whole.startswith(self._taken) else whole
        self._taken = self._rest = ""
        return [rest.strip("\n")] if rest.strip() else []


def _last_end(text: str) -> int:
    """Return where the last complete part of a text ends, 0 when none is complete."""
    end, position, fence = 0, 0, ""
    for line in text.splitlines(keepends=True):
        position += len(line)
        mark = line.lstrip()[:3]
        if mark in _FENCES and (not fence or mark == fence):
            fence = "" if fence else mark
        if not fence and not line.strip() and line.endswith("\n"):
            end = position
    return end
