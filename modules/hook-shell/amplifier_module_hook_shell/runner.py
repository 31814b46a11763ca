"""Running one hook: a command in the sandbox, or a question for a model; it is over in time, with all it started."""

import asyncio
import contextlib
import json
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amplifier_core import ChatRequest, Message
from amplifier_core.boundary import settle
from amplifier_kit.messages.conversation import text_of
from amplifier_kit.mounted_providers import find_provider, mounted_providers
from amplifier_kit.sandbox.availability import find_sandbox
from amplifier_kit.sandbox.limits import Confinement, Mode
from amplifier_kit.sandbox.permissions import Permissions
from amplifier_kit.sandbox.program import Program
from amplifier_kit.tools.processes import reading
from amplifier_system.model_choice import choose_model
from amplifier_system.tasks import start_task

from .declarations import Place
from .protocol import Reply, read_reply, read_verdict

_SHELL = "/bin/sh"
_MOST_OUTPUT = 1_048_576
_MOST_ARGUMENTS = 20_000
_OUTPUT_TOKENS = 512
_LEFT_PIPES_S = 0.5
_NOT_RUN = (126, 127)  # a shell's codes for a program that is not there or cannot be executed
_VERDICT = '\n\nAnswer with JSON only: {"ok": true} or {"ok": false, "reason": "…"}'


class Runner:
    """Runs the hooks of one session."""

    def __init__(self, coordinator: Any, project: Path, sandbox: Mode) -> None:
        self._coordinator = coordinator
        self._project = project
        self._sandbox = sandbox
        self._folder: Path | None = None

    def close(self) -> None:
        """Remove what hooks have left for one another."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    async def command(
        self, command: str, place: Place, payload: Mapping[str, Any], *, event: str, timeout_s: float
    ) -> Reply:
        """Run a command and return what it answers; raises `OSError` and `ValueError` where it cannot be started."""
        sandbox = None if self._sandbox == "off" else await asyncio.to_thread(find_sandbox)
        if sandbox is None and self._sandbox == "required":
            return Reply(error="no sandbox works on this machine, and the configuration requires one")
        if self._folder is None:  # not in the thread: calls run side by side
            self._folder = Path(tempfile.mkdtemp(prefix="amplifier-hooks-"))
        folder, session_id = self._folder, str(payload.get("session_id", ""))
        confinement, environment = await asyncio.to_thread(self._confined, place, folder, session_id)
        with tempfile.TemporaryFile() as stdin:
            stdin.write(json.dumps(payload, default=str).encode())
            stdin.seek(0)
            program = await Program.start(
                [_SHELL, "-c", command], confinement, sandbox=sandbox, environment=environment, stdin=stdin
            )
        try:
            async with asyncio.timeout(timeout_s):
                code, stdout, stderr = await _finished(program)
        except TimeoutError:
            return Reply(error=f"it did not end within {timeout_s:g} seconds")
        finally:
            await program.kill()
        if program.was_refused:
            return Reply(error="the sandbox could not run it")
        if code < 0 or code in _NOT_RUN:
            return Reply(error=f"it ended with {code}: {stderr.strip() or 'nothing on stderr'}")
        if code not in (0, 2):
            return Reply(message=f"a hook ended with {code}: {stderr.strip()[:500]}")
        return read_reply(event, code, stdout, stderr)

    def _confined(self, place: Place, own_folder: Path, session_id: str) -> tuple[Confinement, dict[str, str]]:
        project, own_folder = self._project.resolve(), own_folder.resolve()
        permissions = Permissions.of(self._coordinator, project)
        hooks, file = place.folder.resolve(), own_folder / "environment"
        confinement = Confinement(
            working_dir=project,
            writable=(*permissions.writable, own_folder),
            readable=(hooks,) if hooks.is_dir() else (),
            read_only=permissions.read_only,
            hidden=permissions.hidden,
            shown=(*permissions.shown, *((hooks,) if hooks.is_dir() else ())),
            kept_folders=permissions.kept_folders,
            kept_files=permissions.kept_files,
            has_network=permissions.has_network and permissions.network.commands != "hosts",
        )
        own = {
            "AMPLIFIER_PROJECT_DIR": str(project),
            "AMPLIFIER_HOOKS_DIR": str(hooks),
            "AMPLIFIER_SESSION_ID": session_id,
            "AMPLIFIER_ENV_FILE": str(file),
            "CLAUDE_PROJECT_DIR": str(project),
            "CLAUDE_ENV_FILE": str(file),
        }
        return confinement, {**permissions.environment, **_left_in(file), **own}

    async def prompt(self, prompt: str, payload: Mapping[str, Any], *, timeout_s: float) -> Reply:
        """Ask a model and return its verdict; what a provider raises comes through."""
        arguments = json.dumps(payload, default=str, ensure_ascii=False)
        if len(arguments) > _MOST_ARGUMENTS:
            return Reply(error="the event is too long to be shown to a model")
        text = prompt.replace("$ARGUMENTS", arguments) if "$ARGUMENTS" in prompt else f"{prompt}\n\n{arguments}"
        provider, model = await self._model()
        if provider is None:
            return Reply(error="there is no provider to ask")
        request = ChatRequest(
            messages=[Message(role="user", content=text + _VERDICT)],
            max_output_tokens=_OUTPUT_TOKENS,
            metadata={"stream": False, "purpose": "housekeeping"},
            model=model,
        )
        try:
            async with asyncio.timeout(timeout_s):
                response = await settle(provider.complete(request, extended_thinking=False))
        except TimeoutError:
            return Reply(error=f"no answer within {timeout_s:g} seconds")
        return read_verdict(text_of(response.content, "\n"))

    async def _model(self) -> tuple[Any, str | None]:
        choice = await choose_model(self._coordinator, model_role="fast")
        for preference in choice.preferences:
            found = find_provider(self._coordinator, preference.provider)
            if found is not None:
                return found.provider, preference.model
        return next(iter(mounted_providers(self._coordinator).values()), None), None


async def _finished(program: Program) -> tuple[int, str, str]:
    """Return how a program ended and what it printed; what it left behind does not keep anyone waiting."""
    async with reading(program.stdout) as stdout, reading(program.stderr) as stderr:
        said = [bytearray(), bytearray()]
        readers = [start_task(_collect(stream, into)) for stream, into in zip((stdout, stderr), said, strict=True)]
        try:
            code = await program.wait()
            await asyncio.wait(readers, timeout=_LEFT_PIPES_S)
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
    return code, said[0].decode("utf-8", "replace"), said[1].decode("utf-8", "replace")


async def _collect(stream: asyncio.StreamReader, into: bytearray) -> None:
    while piece := await stream.read(65_536):
        into += piece[: _MOST_OUTPUT - len(into)]


def _left_in(file: Path) -> dict[str, str]:
    """Return the variables that hooks wrote into the file, line by line."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if file.is_symlink():
            return found
        with file.open(encoding="utf-8") as opened:
            lines = opened.read(_MOST_OUTPUT).splitlines()
        for line in lines:
            name, sign, value = line.strip().removeprefix("export ").partition("=")
            if sign and name.isidentifier() and "\0" not in value:
                with contextlib.suppress(ValueError):
                    found[name] = " ".join(shlex.split(value)) if value[:1] in "'\"" else value
    return found
