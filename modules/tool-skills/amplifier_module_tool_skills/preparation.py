"""The body of a skill, made ready: its directory, the output of its commands, and the arguments of the call."""

import logging
import re
import shlex
import uuid
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Literal

from amplifier_core.events import TOOL_POST, TOOL_PRE
from amplifier_kit.approval import deferring, find_gate
from amplifier_kit.messages.conversation import as_tool_result
from amplifier_kit.mounting import find_mounted, hook_registry
from amplifier_kit.types import STAMP

from .definition import SkillMetadata

AllowShell = Literal["never", "ask", "trusted"]

logger = logging.getLogger(__name__)

_INSERT = re.compile(r"!`([^`\n]+)`")
_ARGUMENT = re.compile(r"\$(?:ARGUMENTS\b|(\d+)(?!\d))")
_DIRECTORY = "${SKILL_DIR}"
_TIMEOUT_S = 30
_MOST_OUTPUT = 1 << 20


async def prepared_body(
    coordinator: Any, skill: SkillMetadata, body: str, arguments: str, allow_shell: AllowShell, *, runs_shell: bool
) -> str:
    """Return the body as the model reads it.

    Arguments reach no shell, and nothing is filled in within the output of a command. `$0`, `$1` … count only in a
    skill that says it has arguments, so that prices survive in all others.
    """
    text = body.replace(_DIRECTORY, str(skill.directory))
    takes_numbers = skill.argument_hint is not None or "$ARGUMENTS" in text
    parts: list[str] = []
    end = 0
    for insert in _INSERT.finditer(text) if runs_shell else ():
        parts.append(_filled(text[end : insert.start()], arguments, takes_numbers=takes_numbers))
        parts.append(await _output(coordinator, skill, insert[1], allow_shell))
        end = insert.end()
    parts.append(_filled(text[end:], arguments, takes_numbers=takes_numbers))
    return "".join(parts)


def _filled(text: str, arguments: str, *, takes_numbers: bool) -> str:
    words = arguments.split()

    def value(found: re.Match[str]) -> str:
        if found[1] is None:
            return arguments
        if not takes_numbers:
            return found[0]
        number = int(found[1][:6])
        return words[number] if number < len(words) else ""

    return _ARGUMENT.sub(value, text)


async def _output(coordinator: Any, skill: SkillMetadata, command: str, allow_shell: AllowShell) -> str:
    """Return what a command prints, or a note in brackets that says why it did not run."""
    if allow_shell == "never" or not skill.trusted:
        why = "the configuration forbids it" if allow_shell == "never" else f"its source {skill.source} is not trusted"
        return f"[not run: {command}: {why}]"
    if allow_shell == "ask" and find_gate(coordinator) is None:
        return f"[not run: {command}: this session has nobody to ask]"
    tools = find_mounted(coordinator, "tools")
    bash = tools.get("bash") if isinstance(tools, Mapping) else None
    if bash is None:
        return f"[not run: {command}: this session has no tool `bash`]"
    given = {"command": f"cd {shlex.quote(str(skill.directory))} && {command}", "timeout": _TIMEOUT_S}
    try:
        return await _run(coordinator, bash, given, command)
    except Exception as error:
        logger.warning("tool-skills: a command of the skill %s failed", skill.name, exc_info=True)
        return f"[failed: {command}: {type(error).__name__}]"


async def _run(coordinator: Any, bash: Any, given: dict[str, Any], command: str) -> str:
    """Run a command as a call of the session's own `bash`: hooks, modes, approval, policy and sandbox see it."""
    hooks, gate = hook_registry(coordinator), find_gate(coordinator)
    facts = {"tool_name": "bash", "tool_call_id": f"skill-{uuid.uuid4().hex}"}
    if hooks is not None:
        with deferring(gate) if gate is not None else nullcontext():
            answer = await hooks.emit(TOOL_PRE, {**facts, "tool_input": dict(given)})
        if getattr(answer, "action", None) not in ("continue", "modify", "inject_context"):
            return f"[not run: {command}: {getattr(answer, 'reason', None) or 'a hook denies it'}]"
        changed = answer.data if answer.action == "modify" and isinstance(answer.data, Mapping) else {}
        if isinstance(changed.get("tool_input"), dict) and STAMP not in changed:
            given = changed["tool_input"]
    result = as_tool_result(await bash.execute(dict(given)))
    if hooks is not None:
        await hooks.emit(TOOL_POST, {**facts, "tool_input": dict(given), "result": result.safe_hook_presentation()})
    if not result.success:
        error = result.error or {}
        end = "not run" if error.get("code") == "denied" else "failed"
        return f"[{end}: {command}: {error.get('message') or 'it did not succeed'}]"
    output = result.output.get("stdout") if isinstance(result.output, Mapping) else result.output
    text = str(output or "").strip()
    return f"<shell-output>{text[:_MOST_OUTPUT]}</shell-output>"
