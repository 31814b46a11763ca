"""The here-documents of a shell script: announced in one line, to be read where the next one begins."""

import re

from .shell_commands import Redirect
from .shell_word import Word
from .shell_words import Budget, Dialect, WordReader

_QUOTED = re.compile(r"""'([^']*)'?|"([^"]*)"?|\\(.?)""", re.DOTALL)
_DELIMITER = re.compile(r"""(?:'[^']*'|"[^"]*"|\\.|[^ \t\n;&|()<>'"\\])+""", re.DOTALL)
_ESCAPE = re.compile(r"\\([$`\\])")
_UNESCAPED_EXPANSION = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$[\w{(\[@*#?$!-])")


class HereDocumentReader(WordReader):
    """Reads words and, at the end of a line, the documents that were announced in it."""

    def __init__(self, text: str, dialect: Dialect, budget: Budget, depth: int = 0) -> None:
        super().__init__(text, dialect, budget, depth)
        self.here_documents: list[Redirect] = []

    def expect_here_document(self, redirect: Redirect) -> None:
        """Read the word that ends a document, which begins in the next line."""
        redirect.target = self._read_delimiter()
        self.here_documents.append(redirect)

    def read_here_documents(self, until: str) -> None:
        """Read what was announced; `until` ends the list of commands around it, nothing if the text does."""
        waiting, self.here_documents = self.here_documents, []
        for redirect in waiting:
            self._read_document(redirect, until)

    def _read_delimiter(self) -> Word:
        """Read the word that ends a here-document: quotes count, expansions do not."""
        start = self.place
        if self.dialect.is_bash:
            self.read_word()  # even an expansion is taken as it is written
        elif plain := _DELIMITER.match(self.text, start):
            self.place = plain.end()
        written = self.text[start : self.place]
        delimiter = _QUOTED.sub(lambda quoted: quoted[1] or quoted[2] or quoted[3] or "", written)
        return Word(delimiter, is_plain=delimiter == written)

    def _read_document(self, redirect: Redirect, until: str) -> None:
        delimiter, is_expanded = redirect.target.value, redirect.target.is_plain
        lines: list[str] = []
        while self.place < len(self.text):
            start = self.place
            line = self._read_line(joins=is_expanded and self.dialect.is_bash)
            line = line.lstrip("\t") if redirect.operator == "<<-" else line
            if line == delimiter:
                break
            if until and line.startswith(delimiter) and until in line[len(delimiter) :]:
                self.note_doubt("<<")
                if self.dialect.is_bash:  # the document ends before the end of the line
                    self.place = self.text.index(delimiter, start) + len(delimiter)
                    break
            lines.append(line)
        redirect.body = body = "\n".join(lines)
        if is_expanded:
            self.reader_of(body).read_expansions()
            redirect.body = _ESCAPE.sub(r"\1", body)
            redirect.target = Word(delimiter, is_literal=_UNESCAPED_EXPANSION.search(body) is None)

    def _read_line(self, *, joins: bool) -> str:
        """Read one line, with what a backslash at its end joins to it."""
        line = ""
        while True:
            end = self.text.find("\n", self.place)
            end = len(self.text) if end < 0 else end
            line += self.text[self.place : end]
            self.place = end + 1
            backslashes = len(line) - len(line.rstrip("\\"))
            if not joins or backslashes % 2 == 0 or self.place >= len(self.text):
                return line
            line = line[:-1]
