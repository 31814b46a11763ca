"""What Tab offers in a chat: slash commands, and after `@` files and agents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

_MENTION = re.compile(r"(?:^|\s)@([^\s@]*)$")
_MOST = 40
_HIDDEN = (".", "__pycache__", "node_modules")


class ChatCompleter(Completer):
    """`commands` are the slash commands with their help, `agents` the names of agents."""

    def __init__(
        self, working_dir: Path, commands: Callable[[], Mapping[str, str]], agents: Callable[[], Iterable[str]]
    ) -> None:
        self._working_dir, self._commands, self._agents = working_dir, commands, agents

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        if before.startswith("/") and " " not in before:
            for name, help in self._commands().items():
                if name.startswith(before[1:]):
                    yield Completion(f"/{name}", start_position=-len(before), display_meta=help)
        elif found := _MENTION.search(before):
            typed = found[1]
            yield from islice(self._mentions(typed), _MOST)

    def _mentions(self, typed: str) -> Iterable[Completion]:
        for agent in self._agents():
            if agent.startswith(typed):
                yield Completion(agent, start_position=-len(typed), display_meta="agent")
        folder, _, beginning = typed.rpartition("/")
        directory = self._working_dir / folder
        try:
            inside = sorted(directory.iterdir())
        except OSError:
            return
        for path in inside:
            if path.name.startswith(beginning) and (beginning or not path.name.startswith(_HIDDEN)):
                text = f"{folder}/{path.name}" if folder else path.name
                yield Completion(f"{text}/" if path.is_dir() else text, start_position=-len(typed))
