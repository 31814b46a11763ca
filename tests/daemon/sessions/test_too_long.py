"""A conversation that is too long for its model is compacted once, by itself, and the turn goes on."""

import json
from pathlib import Path

from agents_at_work import Agent
from openai_server import KEY, OpenAIServer, Said, failed

from amplifierd.home import Home

TOO_LONG = failed(400, "context_length_exceeded", "Your input exceeds the context window of this model.")
RESPONSES = "POST /v1/responses"


async def test_it_is_compacted_once_and_says_so(home: Home, work: Path) -> None:
    with OpenAIServer() as vendor:
        provider = {"module": "provider-openai", "config": {"api_key": KEY, "base_url": vendor.base_url}}
        for loop in ("loop-basic", "loop-streaming"):
            plan = {**Agent([], orchestrator=loop).sections(), "providers": [provider]}
            async with home.sessions.open(plan=plan, working_dir=work) as session:
                for number in range(12):
                    vendor.say(Said(f"Answer {number}. " + "It is long. " * 400))
                    await session.execute(f"Question {number} " + "with many words " * 200)
                watching = session.subscribe()
                vendor.script(RESPONSES, TOO_LONG)
                vendor.say("Short again.")

                result = await session.execute("And now?")

                assert (result.status, result.response) == ("completed", "Short again.")
                refused, answered = vendor.sent()[-2:]
                assert len(json.dumps(answered)) < len(json.dumps(refused))
                assert "And now?" in json.dumps(answered["input"][-2:])
                told = []
                async for event in watching:
                    if event["event"] == "display:message":
                        told.append(event["data"]["message"])
                    if event["event"] == "execution:done":
                        break
                assert len([one for one in told if "too long for the model" in one]) == 1

                vendor.script(RESPONSES, TOO_LONG, TOO_LONG)
                failing = await session.execute("And now?")
                assert failing.error is not None
                assert (failing.status, "/compact" in failing.error["hint"]) == ("failed", True)


async def test_one_that_cannot_be_shorter_is_asked_once(home: Home, work: Path) -> None:
    with OpenAIServer() as vendor:
        provider = {"module": "provider-openai", "config": {"api_key": KEY, "base_url": vendor.base_url}}
        plan = {**Agent([]).sections(), "providers": [provider]}
        async with home.sessions.open(plan=plan, working_dir=work) as session:
            vendor.script(RESPONSES, TOO_LONG)
            assert (await session.execute("Hi")).status == "failed"
            assert len(vendor.sent()) == 1
