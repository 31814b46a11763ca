"""Another provider on resume: it is told, the history goes along, and whatever becomes of it, the session goes on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic_server import MESSAGES, AnthropicServer, reply, text, thinking, tool_use
from openai_server import KEY, RESPONSES, OpenAIServer, failed
from warm_python import Keeper


@pytest.fixture(scope="module")
def keeper(keeper: Keeper) -> Iterator[Keeper]:
    """Has the vendors' packages imported, which takes longer than a turn."""
    with keeper.importing("anthropic", "openai") as other:
        yield other


def plan(work: Path, anthropic: AnthropicServer, openai: OpenAIServer) -> str:
    """Write a plan with both vendors; their stand-ins refuse what the vendors would."""
    both = [
        {"module": "provider-anthropic", "config": {"api_key": anthropic.key, "base_url": anthropic.url}},
        {"module": "provider-openai", "config": {"api_key": KEY, "base_url": openai.base_url, "max_retries": 0}},
    ]
    session = {"orchestrator": {"module": "loop-streaming"}, "context": {"module": "context-simple"}}
    (work / "plan.json").write_text(
        json.dumps({"session": session, "providers": both, "tools": [{"module": "tool-filesystem"}]})
    )
    return "plan.json"


def test_a_switch_on_resume_is_told_and_never_ends_the_session(amplifier: Any) -> None:
    def run(*arguments: str, code: int = 0) -> tuple[dict[str, Any], str]:
        done = amplifier("run", "-o", "json", *arguments)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout), done.stderr

    with AnthropicServer() as anthropic, OpenAIServer() as openai:
        look = reply(thinking("The notes will say"), tool_use("toolu_1", "read_file", {"file_path": "notes.md"}))
        anthropic.script(MESSAGES, look, reply(text("Milk.")))
        first, _ = run("--plan", plan(amplifier.work, anthropic, openai), "-p", "anthropic", "What do the notes say?")
        assert first["response"] == "Milk."

        openai.say("Leche.")
        second, told = run("--resume", "last", "-p", "openai", "And in Spanish?")
        assert (second["session_id"], second["turn"], second["response"]) == (first["session_id"], 2, "Leche.")
        assert "warning: session" in told
        assert "uses openai from now on" in told
        assert "buy milk" in json.dumps(openai.sent())

        openai.script(RESPONSES, failed(401, "invalid_api_key", "Incorrect API key provided"))
        broken, told = run("--resume", "last", "Again", code=1)
        assert broken["status"] == "failed"

        anthropic.script(MESSAGES, reply(text("Milk, as I said.")))
        last, told = run("--resume", "last", "-p", "anthropic", "Once more")

    assert (last["turn"], last["response"]) == (4, "Milk, as I said.")
    assert "uses anthropic from now on" in told
    assert "Leche." in json.dumps(anthropic.bodies[-1])


def test_a_provider_that_is_not_there_changes_nothing(amplifier: Any) -> None:
    with AnthropicServer() as anthropic, OpenAIServer() as openai:
        anthropic.script(MESSAGES, reply(text("One.")), reply(text("Two.")))
        amplifier("run", "--plan", plan(amplifier.work, anthropic, openai), "-p", "anthropic", "Begin")

        unknown = amplifier("run", "--resume", "last", "-p", "openia", "Go on")
        after = amplifier("run", "--resume", "last", "Go on")

    assert (unknown.returncode, "did you mean openai?" in unknown.stderr) == (2, True)
    assert after.stdout == "Two.\n"
