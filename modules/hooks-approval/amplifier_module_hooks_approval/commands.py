"""What a shell command gives away: whether it is one plain command, and whether it can do great damage."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

BASH = "bash"

# Everything by which a shell can be made to do more than run one program, and characters that no one types.
_NOT_SIMPLE = re.compile(r"[;&|<>`$()\\\x00-\x08\x0a-\x1f\x7f-\x9f]")
_TRIMMED = " \t\n"
_SEPARATORS = re.compile(r"[;&|\r\n]")

_LINE_CONTINUATION = re.compile(r"\\\n")
_HIDDEN_SPACE = re.compile(r"\$\{?ifs\}?")
_QUOTING = re.compile(r"['\"\\]")
_STAGE_PARTS = re.compile(r"[;&|\r\n()`{}<>]")

_EVERYTHING = re.compile(r"[/.*]+|(?:~[\w-]*|\$\{?home\}?)[/.*]*")
_BLOCK_DEVICE = r"/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|loop|md|dm-|mapper/|r?disk|nbd|zd|sr|ram)[\w/-]*"
_WRITTEN_DEVICE = re.compile(r">[>|&]?\s*" + _BLOCK_DEVICE)
_DEVICE = re.compile(_BLOCK_DEVICE)
_FORK_BOMB = re.compile(r"([\w:.]{1,32})\s*\(\s*\)\s*\{[^}]{0,200}?\1\s*\|\s*\1\s*&")
_DOWNLOADED_SCRIPT = re.compile(r"(?:<\(|\$\(|`)\s*(?:\S{1,100}/)?(?:curl|wget|fetch)\s")

_DEVICE_WRITERS = frozenset({"tee", "cp", "mv", "install", "shred", "wipefs", "blkdiscard", "truncate"})
_PRIVILEGE = frozenset({"sudo", "doas"})
_DOWNLOADERS = frozenset({"curl", "wget", "fetch"})
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ash", "ksh", "csh", "tcsh", "fish"})
_INTERPRETERS = frozenset({"python", "python3", "perl", "ruby", "node", "php"})
_EVALUATORS = _SHELLS | {"eval", "source", "."}


def command_of(tool_input: Mapping[str, Any]) -> str:
    """Return the command a tool is asked to run, empty when there is none."""
    command = tool_input.get("command")
    return command if isinstance(command, str) else ""


def trimmed(command: str) -> str:
    return command.strip(_TRIMMED)


def is_simple(command: str) -> bool:
    """True if a command runs one program and does nothing else."""
    text = trimmed(command)
    return text != "" and _NOT_SIMPLE.search(text) is None


def segments(command: str) -> list[str]:
    """Return the whole command and every part of it between separators."""
    return [command, *_SEPARATORS.split(command)]


def is_critical(command: str) -> bool:
    """True if a command is of the kind that a person should always see first, however it is quoted."""
    text = _LINE_CONTINUATION.sub("", command).lower()
    text = _QUOTING.sub("", _HIDDEN_SPACE.sub(" ", text))
    return any(is_found(text) for is_found in _CRITICAL)


def _parts(text: str) -> Iterable[list[str]]:
    """Yield the words of every simple command in a text."""
    return (part.split() for part in _STAGE_PARTS.split(text))


def program_of(word: str) -> str:
    """Return the name of a program without its directory."""
    return word.rpartition("/")[2]


def _deletes_everything(text: str) -> bool:
    return any(_is_forced_deletion(words) for words in _parts(text))


def _is_forced_deletion(words: list[str]) -> bool:
    place = next((place for place, word in enumerate(words) if program_of(word) == "rm"), len(words))
    flags = [word for word in words[place:] if word.startswith("-")]
    return (
        _has_option(flags, "r", "--recursive")
        and _has_option(flags, "f", "--force")
        and any(_EVERYTHING.fullmatch(word) for word in words[place:])
    )


def _has_option(flags: list[str], letter: str, name: str) -> bool:
    return any(name.startswith(flag) if flag.startswith("--") and len(flag) > 2 else letter in flag for flag in flags)


def _makes_file_system(text: str) -> bool:
    return any(program_of(word).startswith("mkfs") for words in _parts(text) for word in words)


def _copies_onto_device(text: str) -> bool:
    return any(
        any(program_of(word) == "dd" for word in words) and any(word.startswith("of=/dev/") for word in words)
        for words in _parts(text)
    )


def _is_fork_bomb(text: str) -> bool:
    return _FORK_BOMB.search(text) is not None


def _writes_block_device(text: str) -> bool:
    return _WRITTEN_DEVICE.search(text) is not None or any(
        _DEVICE_WRITERS.intersection(map(program_of, words)) and any(_DEVICE.fullmatch(word) for word in words)
        for words in _parts(text)
    )


def _raises_privileges(text: str) -> bool:
    return any(program_of(word) in _PRIVILEGE for words in _parts(text) for word in words)


def _runs_download(text: str) -> bool:
    if _DOWNLOADED_SCRIPT.search(text):
        return any(program_of(word) in _EVALUATORS for words in _parts(text) for word in words)
    is_downloading = False
    for stage in text.split("|"):
        parts = list(_parts(stage))
        if is_downloading and any(_runs_its_input(words) for words in parts):
            return True
        is_downloading |= any(program_of(word) in _DOWNLOADERS for words in parts for word in words)
    return False


def _runs_its_input(words: list[str]) -> bool:
    for place, word in enumerate(words):
        program = program_of(word)
        if program in _SHELLS or (program in _INTERPRETERS and words[place + 1 : place + 2] in ([], ["-"])):
            return True
    return False


_CRITICAL: tuple[Callable[[str], bool], ...] = (
    _deletes_everything,
    _makes_file_system,
    _copies_onto_device,
    _is_fork_bomb,
    _writes_block_device,
    _raises_privileges,
    _runs_download,
)
