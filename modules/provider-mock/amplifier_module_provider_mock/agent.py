"""Agent mode: a stand-in for a model that follows plain rules, so that a machine without a key shows a turn at work."""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .entries import Entry, EntryCall
from .faults import Answered, TurnView

# Which tool a plain request asks for: `read X`, `list files in D`, ``run `C` ``, `search for X in D`.


_QUOTED = r"`[^`]*`|\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)"
_BOUNDARY = re.compile(rf"({_QUOTED})|\n|;|\bthen\b", re.IGNORECASE)
_OPENING = re.compile(r"(?:please|(can you|could you)|and|also|now)\b[\s,:]*", re.IGNORECASE)
_ARGUMENT = re.compile(r"\s*(?:`([^`]+)`|\"([^\"]+)\"|'([^']+)'|(\S+))")
_PLACE = re.compile(r".*?\b(?:in|under|inside)\s+(.+)", re.IGNORECASE | re.DOTALL)
_PLACE_WORDS = re.compile(
    r"^(?:(?:the|this|current)\b\s*)+|\b(?:here|directory|folder|project|repository)$", re.IGNORECASE
)
_REGEX_SIGNS = re.compile(r"[\\.^$*+?{}\[\]|()]")

_READ = re.compile(r"(?:read|show|open|cat)\s+(?:me\s+)?(?:the\s+)?(?:file\s+)?(.+)", re.IGNORECASE | re.DOTALL)
_LIST_FILES = re.compile(r"(?:list\s+(?:all\s+)?(?:the\s+|my\s+)?files|what\s+files)\b(.*)", re.IGNORECASE | re.DOTALL)
_LS = re.compile(r"ls\b((?:\s+-\S+)*)(.*)", re.IGNORECASE | re.DOTALL)
_LIST = re.compile(rf"list\s+({_QUOTED}|\S+)\s*", re.IGNORECASE)
_RUN = re.compile(rf"run\s+(?:the\s+)?(?:command\s+)?({_QUOTED}).*", re.IGNORECASE | re.DOTALL)
_EXECUTE = re.compile(r"(?:run\s*:|execute\b\s*:?)\s*(?:the\s+command\s+)?(.+)", re.IGNORECASE | re.DOTALL)
_SEARCH = re.compile(r"(?:search\s+for|grep)\s+(.+)", re.IGNORECASE | re.DOTALL)
_FIND = re.compile(r"find\s+(.+)", re.IGNORECASE | re.DOTALL)
_IN_PLACE = re.compile(
    rf"(.+)\s+in\s+({_QUOTED}|(?:(?:the|this|current)\s+)*\S+(?:\s+(?:directory|folder))?)", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One way to do a step."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a request that a rule understands: the words for it, and the ways to do it, the best one first."""

    action: str
    ways: tuple[ToolUse, ...]

    def way_with(self, offered: Sequence[str]) -> ToolUse | None:
        """Return the first way whose tool is offered."""
        return next((way for way in self.ways if way.tool in offered), None)


def find_steps(text: str) -> list[Step]:
    """Return the steps of a request that a rule understands, in order."""
    return [step for part in split_steps(text) if (step := find_step(part))]


def split_steps(text: str) -> list[str]:
    """Return the parts of a request: split at line ends, `;` and `then`, but not inside quotes or backticks."""
    parts, start = [], 0
    for match in _BOUNDARY.finditer(text):
        if match[1] is None:
            parts.append(text[start : match.start()])
            start = match.end()
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def find_step(part: str) -> Step | None:
    """Return what one part asks for, None when no rule matches."""
    text = _bare(part)
    return next((step for rule in _RULES if (step := rule(text))), None)


def _bare(part: str) -> str:
    """Return a part without polite openings and without the words that join it to the next."""
    is_question = False
    while opening := _OPENING.match(part):
        is_question = is_question or opening[1] is not None
        part = part[opening.end() :]
    part = re.sub(r"[\s,]+(?:and|please)?[\s,]*$", "", part)
    return part.rstrip("?").rstrip() if is_question else part


def _read(text: str) -> Step | None:
    match = _READ.fullmatch(text)
    path = _path(match[1]) if match else ""
    if not re.search(r"[/.~]", path):
        return None
    return Step(f"I will read {path}.", (ToolUse("read_file", {"file_path": path}),))


def _list(text: str) -> Step | None:
    if match := _LIST_FILES.fullmatch(text):
        directory = _directory(match[1])
    elif match := _LS.fullmatch(text):
        directory = _path(match[2]) or "."
    elif match := _LIST.fullmatch(text):
        directory = _path(match[1])
    else:
        return None
    return Step(
        f"I will list the files {_in(directory)}.",
        (
            ToolUse("glob", {"pattern": "*", "path": directory}),
            ToolUse("read_file", {"file_path": directory}),
            ToolUse("bash", {"command": f"ls -la {shlex.quote(directory)}"}),
        ),
    )


def _run(text: str) -> Step | None:
    match = _RUN.fullmatch(text) or _EXECUTE.fullmatch(text)
    if not match:
        return None
    command = _unquoted(match[1].strip())
    return Step(f"I will run `{command}`.", (ToolUse("bash", {"command": command}),)) if command else None


def _search(text: str) -> Step | None:
    match = _SEARCH.fullmatch(text) or _FIND.fullmatch(text)
    if not match:
        return None
    wanted, directory = match[1].strip(), ""
    if place := _IN_PLACE.fullmatch(wanted):
        wanted, directory = place[1].strip(), _path(_PLACE_WORDS.sub("", place[2]))
    elif _FIND.fullmatch(text):
        return None
    wanted, directory = _unquoted(re.sub(r"\s+here$", "", wanted)), directory or "."
    pattern = _REGEX_SIGNS.sub(lambda sign: f"\\{sign[0]}", wanted)
    use = ToolUse("grep", {"pattern": pattern, "path": directory, "output_mode": "content"})
    return Step(f"I will search for {wanted} {_in(directory)}.", (use,)) if wanted else None


_RULES: tuple[Callable[[str], Step | None], ...] = (_read, _list, _run, _search)


def _directory(text: str) -> str:
    """Return the directory that a text names after `in`, else the current one."""
    match = _PLACE.fullmatch(text)
    return _path(_PLACE_WORDS.sub("", match[1].rstrip("?!., "))) or "." if match else "."


def _path(text: str) -> str:
    """Return the first argument of a text: what is quoted, else its first word without the sentence's punctuation."""
    match = _ARGUMENT.match(text)
    if not match:
        return ""
    if match[4] is None:
        return str(next(filter(None, match.groups())))
    word = match[4].rstrip(",;:!?")
    return word[:-1] if re.search(r"[^./]\.$", word) else word


def _unquoted(text: str) -> str:
    is_quoted = len(text) > 2 and text[0] in "`\"'" and text.find(text[0], 1) == len(text) - 1
    return text[1:-1] if is_quoted else text


def kinds() -> Iterator[str]:
    """Yield an example of each kind of request that a rule understands."""
    yield "read README.md"
    yield "list files in src"
    yield "run `ls -la`"
    yield "search for TODO in src"


def _in(directory: str) -> str:
    return "here" if directory == "." else f"in {directory}"


_SHOWN_LINES = 20
_FAILED_TEXT = re.compile(
    r"(error|denied|access denied|permission denied|path not found|not found|invalid|command (denied|timed out)"
    r"|search timed out|failed|cannot|could not|tool '.*' not found)\b",
    re.IGNORECASE,
)


def agent_entry(view: TurnView) -> Entry:
    """Return the answer to a request: the next step as a tool call, or, when none is left, what came of them."""
    steps = find_steps(view.user_text)
    runnable = [(step, use) for step in steps if (use := step.way_with(view.offered))]
    if view.rounds < len(runnable):
        step, use = runnable[view.rounds]
        return Entry(text=step.action, tool_calls=(EntryCall(use.tool, use.arguments),))
    return Entry(text=_report(view, steps) if steps or view.results else _introduction())


def _report(view: TurnView, steps: list[Step]) -> str:
    parts = [_described(result) for result in view.results]
    parts += [
        f"{step.action} But that needs the tool {step.ways[0].tool}, which is not offered."
        for step in steps
        if step.way_with(view.offered) is None
    ]
    return "\n\n".join(parts)


def _introduction() -> str:
    examples = "\n".join(f"- {example}" for example in kinds())
    return (
        "This is the offline provider: it follows fixed rules and needs neither a key nor a network. "
        f"It understands four kinds of request, one after another with `then`:\n{examples}\n"
        "Anything else needs a configured model provider."
    )


def _described(result: Answered) -> str:
    data = _as_object(result.text)
    lines = (_readable(data) if data is not None else result.text).splitlines()
    shown = "\n".join(lines[:_SHOWN_LINES])
    if len(lines) > _SHOWN_LINES:
        shown += f"\n… and {len(lines) - _SHOWN_LINES} more lines"
    return f"{result.tool}{' failed' if _has_failed(result.text, data) else ''}:\n{shown}"


def _has_failed(text: str, data: dict[str, Any] | None) -> bool:
    if data is None:
        return bool(_FAILED_TEXT.match(text))
    return bool(data.get("error") or data.get("returncode") or data.get("cancelled") or data.get("success") is False)


def _as_object(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def _readable(data: dict[str, Any]) -> str:
    """Return a tool's output as a person would want to read it."""
    if isinstance(content := data.get("content"), str):
        return content
    if "stdout" in data or "stderr" in data:
        streams = [str(data[key]).rstrip("\n") for key in ("stdout", "stderr") if data.get(key)]
        code = data.get("returncode")
        return "\n".join([*streams, *([f"exit code {code}"] if code else [])]) or "(no output)"
    for key in ("matches", "results"):
        if isinstance(found := data.get(key), list):
            return "\n".join(_line(item) for item in found) or "(nothing found)"
    return "\n".join(f"{key}: {_line(value)}" for key, value in data.items())


def _line(item: Any) -> str:
    match item:
        case str():
            return item
        case {"file": file, "content": content}:
            number = item.get("line_number")
            return f"{file}:{content}" if number is None else f"{file}:{number}:{content}"
        case {"path": path}:
            return str(path)
    return json.dumps(item, ensure_ascii=False)
