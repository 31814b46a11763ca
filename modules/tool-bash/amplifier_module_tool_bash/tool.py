"""The tool `bash`."""

import asyncio
import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_core import ToolResult
from amplifier_kit.consent import Consent, consent_to
from amplifier_kit.tools.answering_tool import AnsweringTool
from amplifier_kit.tools.input import ToolFailure, read_input
from amplifier_kit.tools.paths import WorkingDir
from amplifier_kit.tools.runs import run_to_end

from .background import BackgroundCommands
from .comparison import Comparison
from .foreground import ForegroundCommands, whole
from .launch import Launch, LaunchPad, Shell, find_shell
from .pending_starts import Starts
from .safety import SafetyResult
from .settings import Settings

logger = logging.getLogger(__name__)

_BY_A_PERSON = (Consent.APPROVED, Consent.REMEMBERED)

_LONGEST_TIMEOUT_S = 10.0**9
_MAX_COMMAND_BYTES = 131_071  # what a system takes as one argument
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "The command or script that bash runs."},
        "timeout": {
            "type": "integer",
            "description": "Seconds after which the command and everything it started is killed.",
        },
        "run_in_background": {
            "type": "boolean",
            "default": False,
            "description": "Return at once and let the command go on: for servers, watchers and long builds.",
        },
    },
    "required": ["command"],
}
_CHECKED = {**_SCHEMA, "properties": {**_SCHEMA["properties"], "timeout": {"type": "number"}}}
_DESCRIPTION = (
    "Run a command with bash in the working directory and get its stdout, stderr and returncode. Every call is a new"
    " shell: `cd` and variables do not carry over. Nothing can be typed into it: stdin is empty. A command is killed"
    " when its time is up ({timeout} s unless `timeout` says otherwise), and the middle of a long output is left"
    " out. Use `run_in_background` for what does not end by itself. Not for reading, writing or searching files where"
    " a tool of its own does that."
)
_UNCONFINED = (
    "no sandbox works on this machine, so commands run with all rights of this process; install bubblewrap or the extra"
    " `sandbox`"
)


@dataclass(frozen=True, slots=True)
class _Request:
    """What the tool is asked to do."""

    command: str
    timeout_s: float
    is_background: bool

    @classmethod
    def read(cls, given: Any, settings: Settings) -> "_Request":
        """Return the input if it can be used; raises `ToolFailure`."""
        command = given.get("command") if isinstance(given, dict) else None
        if not isinstance(command, str) or not command.strip():
            raise ToolFailure("Command is required", "invalid_input")
        if problem := _problem(command):
            raise ToolFailure(f"bash: the command {problem}; write it to a file and run that", "invalid_input")
        values = read_input("bash", _CHECKED, given)
        timeout_s = float(values.get("timeout", settings.timeout_s))
        if not 0 < timeout_s <= _LONGEST_TIMEOUT_S:
            raise ToolFailure(f"bash: 'timeout' must be a positive number, got {timeout_s}", "invalid_input")
        if settings.max_timeout_s is not None:
            timeout_s = min(timeout_s, settings.max_timeout_s)
        return cls(command, timeout_s, values["run_in_background"])


def _problem(command: str) -> str:
    """Return why a command cannot be handed to a shell."""
    try:
        size = len(command.encode())
    except UnicodeEncodeError:
        return "is not valid text"
    if "\0" in command:
        return "contains a NUL character"
    return f"has {size} bytes, more than {_MAX_COMMAND_BYTES}" if size > _MAX_COMMAND_BYTES else ""


def _with_undone(result: ToolResult, undone: list[str]) -> ToolResult:
    """Return a result that says what was put back."""
    if not undone:
        return result
    if not isinstance(result.output, dict):  # that of a timeout
        return result.model_copy(update={"output": "\n".join([str(result.output), *undone])})
    note = "; ".join(filter(None, [result.output.get("note", ""), *undone]))
    undone = [*result.output.get("undone", ()), *undone]
    return result.model_copy(update={"output": {**result.output, "undone": undone, "note": note}})


class BashTool(AnsweringTool):
    """Runs shell commands within the limits of a safety profile."""

    name = "bash"
    effects = frozenset({"read", "write", "execute", "network"})

    def __init__(self, config: Mapping[str, Any] | None = None, coordinator: Any = None) -> None:
        self.settings = Settings(config)
        self.description = _DESCRIPTION.format(timeout=whole(self.settings.timeout_s))
        self._coordinator = coordinator
        self._working_dir = WorkingDir(self.settings.working_dir, coordinator)
        self._starts = Starts()
        self._foreground = ForegroundCommands(self.settings.max_output_bytes, coordinator, self._starts)
        self._comparison = Comparison(coordinator, self.name)
        self._background = BackgroundCommands(
            self.settings.background_log_dir, coordinator, self._starts, self._comparison
        )
        self._pad = LaunchPad(self.settings, coordinator)
        self._active = 0
        self._has_told = False

    @property
    def input_schema(self) -> dict[str, Any]:
        return copy.deepcopy(_SCHEMA)

    def get_metadata(self) -> dict[str, Any]:
        """Return what approval needs to know."""
        return {
            "requires_approval": self.settings.require_approval,
            "approval_hints": {
                "risk_level": "high",
                "dangerous_patterns": list(self.settings.denied_commands),
                "safe_patterns": list(self.settings.allowed_commands),
            },
        }

    async def close(self) -> None:
        """End what is still being waited for, and background commands: all that are sandboxed, others as configured."""
        await self._starts.wait()
        await self._foreground.close()
        await self._background.close(is_killing=self.settings.kill_background_on_cleanup)

    async def answer(self, given: Any) -> ToolResult:
        """Run a command; only a cancellation is raised, once nothing of the command is left."""
        request = _Request.read(given, self.settings)
        logger.debug("bash: a command of %d characters", len(request.command))
        consent = consent_to(self._coordinator, self.name, given)
        shell, verdict = await asyncio.to_thread(self._judge, request.command)
        if not verdict.allowed and not (consent in _BY_A_PERSON and not verdict.is_understood):
            message = f"Command denied for safety: {verdict.reason}\n  Hint: {verdict.hint}"
            raise ToolFailure(message, "command_denied", matched_pattern=verdict.matched_pattern)
        return await self._run(request, shell, consent)

    def _judge(self, command: str) -> tuple[Shell, SafetyResult]:
        shell = find_shell()
        return shell, self.settings.validator.validate(command, shell.name)

    async def _run(self, request: _Request, shell: Shell, consent: Consent) -> ToolResult:
        limit = self.settings.max_concurrent
        if limit is not None and self._active >= limit:
            message = f"bash: the concurrent command limit of {limit} is reached; wait for a command to end"
            raise ToolFailure(message, "concurrency_limit", retryable=True)
        self._active += 1
        try:
            launch = await asyncio.to_thread(self._prepare, request.command, shell, consent)
            can_change = consent is not Consent.UNASKED or launch.sandbox is None
            if request.is_background:
                result = await self._background.start(launch, is_compared=can_change)
            elif can_change:
                result = await self._run_compared(launch, request.timeout_s)
            else:
                result = await self._foreground.run(launch, request.timeout_s)
            result = _with_undone(result, self._background.take_undone())
            return self._marked(result) if launch.misses_sandbox else result
        finally:
            self._active -= 1

    async def _run_compared(self, launch: Launch, timeout_s: float) -> ToolResult:
        """Run a command that can write; what it changed in running places is put back unless a person keeps it."""
        await self._comparison.begin(launch)
        undone: list[str] = []
        try:
            result = await self._foreground.run(launch, timeout_s)
        finally:
            undone = await run_to_end(self._comparison.end(launch))
        return _with_undone(result, undone)

    def _prepare(self, command: str, shell: Shell, consent: Consent) -> Launch:
        return self._pad.prepare(command, shell, self._working_dir.path(), consent, self._background.log_dirs)

    def _marked(self, result: ToolResult) -> ToolResult:
        """Return a result that says that the command ran without a sandbox; the first that can, in a sentence."""
        metadata = {"sandbox": "none"}
        if not isinstance(result.output, dict):  # that of a timeout, which has no room for a sentence
            return result.model_copy(update={"error": {**(result.error or {}), "metadata": metadata}})
        output = {**result.output, "metadata": metadata}
        if not self._has_told:
            logger.warning("%s", _UNCONFINED)
            self._has_told = True
            output["note"] = "; ".join(filter(None, [output.get("note", ""), _UNCONFINED]))
        return result.model_copy(update={"output": output})
