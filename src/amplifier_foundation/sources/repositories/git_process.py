"""Running the `git` command: no prompts, no hooks, no filters, a time limit, and nothing left behind."""

import asyncio
import contextlib
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from amplifier_foundation.exceptions import RefResolutionReason
from amplifier_foundation.sources.reference import GIT_TRANSPORTS, GitReference
from amplifier_system.processes import ProcessTree, reading
from amplifier_system.tasks import run_to_end, start_task
from amplifier_system.urls import shown

# What git is given to reach a repository: a URL without secrets, and the secrets by ways that no one else sees.
#
# Credentials go through git's credential helpers: ours is a line of shell that answers from the child's
# environment. They are in no argument, which other users could read, and in no file.


_USER = "AMPLIFIER_GIT_USERNAME"
_PASSWORD = "AMPLIFIER_GIT_PASSWORD"
_HELPER = f'!f() {{ test "$1" != get || printf "username=%s\\npassword=%s\\n" "${_USER}" "${_PASSWORD}"; }}; f'


@dataclass(frozen=True, slots=True)
class GitAccess:
    """The way to one repository; `options` are git's `-c`, `environment` is for the child alone."""

    url: str
    transport: str
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict, repr=False)


def git_access(reference: GitReference) -> GitAccess:
    """Return the way to a reference's repository.

    A user name without a password may be a token, and may belong to a password that the user's own helpers know: they
    are asked first, then it is sent with an empty one. With a password no other helper is asked.
    """
    transport, _, location = reference.url.partition("://")
    authority, slash, path = location.partition("/")
    userinfo, _, host = authority.rpartition("@")
    if transport == "ssh":
        account = userinfo.partition(":")[0]
        return GitAccess(f"ssh://{account}{'@' if account else ''}{host}{slash}{path}", transport)
    name, colon, password = (unquote(part) for part in userinfo.partition(":"))
    plain = f"{transport}://{host}{slash}{path}"
    url, settings = shown(plain), {}
    if url != plain:  # a secret in the query, of which git's arguments show the hidden form
        settings[f"url.{plain}.insteadOf"] = url
    if not name and not password:
        return GitAccess(url, transport, environment=_as_environment(settings))
    section = f"credential.{transport}://{host}"
    if name:
        settings[f"{section}.username"] = name
    helpers = ("", _HELPER) if colon else (_HELPER,)
    return GitAccess(
        url,
        transport,
        tuple(f"{section}.helper={helper}" for helper in helpers),
        {_USER: name, _PASSWORD: password, **_as_environment(settings)},
    )


def _as_environment(settings: dict[str, str]) -> dict[str, str]:
    """Return settings of git as it reads them from the environment."""
    if not settings:
        return {}
    named = {f"GIT_CONFIG_KEY_{number}": name for number, name in enumerate(settings)}
    values = {f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(settings.values())}
    return {"GIT_CONFIG_COUNT": str(len(settings)), **named, **values}


_OF_A_REPOSITORY = (  # variables that git sets for hooks and aliases, and that would redirect ours
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
    "GIT_REPLACE_REF_BASE",
    "GIT_CONFIG",
)
_OPTIONS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "fetch.writeCommitGraph=false",
    "advice.detachedHead=false",
    "http.followRedirects=false",  # git would follow them anywhere
)
_FAILURES: dict[RefResolutionReason, str] = {  # the first that fits
    "offline": r"could not resolve (host|proxy)|couldn't connect|failed to connect|connection refused|unable to connect"
    r"|network is unreachable|no route to host|name resolution|name or service not known|connection timed out"
    r"|operation timed out|nodename nor servname|ssh: connect to host|unable to look up|proxy connect aborted",
    "auth": r"could not read (username|password)|authentication failed|permission denied|terminal prompts disabled"
    r"|access denied|returned error: 40[13]|host key verification failed|dubious ownership",
    "not-found": r"repository .* not found|does not exist|does not appear to be a git repository|not a git repository"
    r"|returned error: 404|no such file or directory|not our ref|couldn't find remote ref",
}
_COUNT = "GIT_CONFIG_COUNT"
_KEPT_ERROR_BYTES = 8192
_OUTPUT_LIMIT = 64 * 1024 * 1024
_PROGRESS = re.compile(rb"^[A-Za-z: ]+:\s+\d+% \(")


class GitCloneTimeoutError(Exception):
    """git did not finish in time, and was ended with everything it had started."""

    def __init__(self, git_args: Sequence[str] = (), timeout_s: float = 0.0) -> None:
        super().__init__(f"git did not finish within {timeout_s:g} s")
        self.git_args = list(git_args)
        self.timeout_s = timeout_s


class GitError(Exception):
    """git ended with an error; `reason` is what its words amount to."""

    def __init__(self, git_args: Sequence[str], stderr: str) -> None:
        super().__init__(_last_words(stderr) or "git gave no reason")
        self.git_args = list(git_args)
        self.stderr = stderr
        fitting = (reason for reason, pattern in _FAILURES.items() if re.search(pattern, stderr, re.IGNORECASE))
        self.reason: RefResolutionReason = next(fitting, "network")


async def run_git(
    *arguments: str,
    access: GitAccess | None = None,
    git_dir: Path | None = None,
    timeout_s: float,
    on_output: Callable[[bytes], None] | None = None,
    on_progress: Callable[[bytes], None] | None = None,
) -> bytes:
    """Run git and return what it wrote, or pass it to `on_output` piece by piece; an exception there ends git.

    `access` is the way to the repository that the arguments name by its URL. `on_progress` gets the lines of git's
    progress display.

    Raises:
        GitError: git failed.
        GitCloneTimeoutError: it took longer than `timeout_s`.
    """
    options = [word for option in (*_OPTIONS, *(access.options if access else ())) for word in ("-c", option)]
    command = ["git", f"--git-dir={git_dir or '/dev/null'}", *options, *arguments]
    environment = await _environment(access)
    try:
        tree = await ProcessTree.start(command, environment=environment, cwd=Path("/"))
    except FileNotFoundError as error:
        raise GitError(command[1:], "the command 'git' is not installed") from error
    output = start_task(_read_output(tree.stdout, on_output))
    errors = start_task(_read_errors(tree.stderr, on_progress))
    try:
        async with asyncio.timeout(timeout_s):
            done, _ = await asyncio.wait({output, errors}, return_when=asyncio.FIRST_EXCEPTION)
            for each in done:
                each.result()
            await tree.wait()
    except TimeoutError:
        raise GitCloneTimeoutError(arguments, timeout_s) from None
    finally:
        await run_to_end(_end(tree, output, errors))
    if tree.returncode != 0:
        raise GitError(arguments, errors.result())
    return output.result()


async def _end(tree: ProcessTree, *readings: "asyncio.Future[Any]") -> None:
    """Make sure that nothing of the child is left, and that its pipes are closed."""
    if tree.returncode is None or not all(each.done() for each in readings):
        await tree.kill()
    for each in readings:
        each.cancel()
    await asyncio.wait(readings)
    tree.close_pipes()


async def _environment(access: GitAccess | None) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_REPOSITORY}
    environment.update(
        GIT_TERMINAL_PROMPT="0",
        GIT_ASKPASS="",
        SSH_ASKPASS_REQUIRE="never",
        GCM_INTERACTIVE="never",
        GIT_LFS_SKIP_SMUDGE="1",
        GIT_ALLOW_PROTOCOL=":".join(GIT_TRANSPORTS),
        GIT_OPTIONAL_LOCKS="0",
        GIT_ATTR_NOSYSTEM="1",
        LC_ALL="C",
    )
    if access is None:
        return environment
    if access.transport == "ssh":
        environment["GIT_SSH_COMMAND"] = f"{await _ssh_command()} -oBatchMode=yes"
    return _with_settings(environment, access.environment)


def _with_settings(environment: dict[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """Return both; settings of git that the user has in the environment keep their numbers, ours follow."""
    own = environment.get(_COUNT, "")
    first = int(own) if own.isdigit() else 0
    moved = {name: value for name, value in added.items() if not name.startswith("GIT_CONFIG_")}
    for number in range(int(added.get(_COUNT, 0))):
        for kind in ("KEY", "VALUE"):
            moved[f"GIT_CONFIG_{kind}_{first + number}"] = added[f"GIT_CONFIG_{kind}_{number}"]
        moved[_COUNT] = str(first + number + 1)
    return {**environment, **moved}


async def _ssh_command() -> str:
    """Return the user's own ssh command: setting ours would otherwise hide it."""
    if command := os.environ.get("GIT_SSH_COMMAND"):
        return command
    with contextlib.suppress(GitError, GitCloneTimeoutError):
        if command := (await run_git("config", "--get", "core.sshCommand", timeout_s=10)).decode().strip():
            return command
    return shlex.quote(os.environ.get("GIT_SSH") or "ssh")


async def _read_output(pipe: IO[bytes] | None, on_output: Callable[[bytes], None] | None) -> bytes:
    output = bytearray()
    async with reading(pipe) as stream:
        while chunk := await stream.read(65536):
            if on_output is not None:
                on_output(chunk)
            elif len(output) < _OUTPUT_LIMIT:
                output += chunk
    return bytes(output)


async def _read_errors(pipe: IO[bytes] | None, on_progress: Callable[[bytes], None] | None) -> str:
    """Return the last words of the child's stderr, without its progress display."""
    kept, line = bytearray(), bytearray()

    def end_line() -> None:
        if _PROGRESS.match(line.removeprefix(b"remote: ")):
            if on_progress is not None:
                on_progress(bytes(line))
        else:
            kept.extend(line + b"\n")
            del kept[:-_KEPT_ERROR_BYTES]
        line.clear()

    async with reading(pipe) as stream:
        while chunk := await stream.read(4096):
            for piece in re.split(rb"([\r\n])", chunk):
                if piece in (b"\r", b"\n"):
                    end_line()
                else:
                    line.extend(piece[:_KEPT_ERROR_BYTES])
                    del line[_KEPT_ERROR_BYTES:]
    end_line()
    return kept.decode("utf-8", "replace")


def _last_words(stderr: str) -> str:
    """Return what git said, the lines that name the failure first."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    relevant = [line for line in lines if line.startswith(("fatal:", "error:", "ERROR:", "ssh:", "remote:"))]
    return "; ".join((relevant or lines)[-4:])
