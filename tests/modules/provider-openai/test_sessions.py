"""Real sessions: the kernel, the streaming loop, a context and a tool, against the loopback server."""

from typing import Any

from openai_server import CHAT, OpenAIServer, Said
from turns import FunctionTool

from amplifier_core import AmplifierSession, ToolResult


async def test_a_conversation_with_fifty_tool_calls_runs_from_end_to_end(server: OpenAIServer, api: str) -> None:
    config = {"api": api, "base_url": server.base_url, "api_key": server.key}
    plan: dict[str, Any] = {
        "session": {"orchestrator": "loop-streaming", "context": "context-simple"},
        "providers": [{"module": "provider-openai", "config": config}],
    }
    for number in range(0, 50, 2):
        calls = [(f"call_{place}", "double", {"number": place}) for place in (number, number + 1)]
        server.say(Said(f"Step {number}.", thinking="hm", calls=calls))
    server.say("All done.")
    schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
    tool = FunctionTool("double", lambda given: ToolResult(output=str(2 * given["number"])), schema)

    async with AmplifierSession(plan) as session:
        await session.coordinator.mount("tools", tool, name="double")
        answer = await session.execute("Double them.")

    assert answer == "All done."
    assert sorted(given["number"] for given in tool.inputs) == list(range(50))
    bodies = server.sent()
    assert len(bodies) == 26
    items = bodies[-1].get("input") or bodies[-1]["messages"]
    results = [item.get("output") or item.get("content") for item in items if is_result(item)]
    assert results == [str(2 * number) for number in range(50)]
    if api == "responses":
        assert len([item for item in items if item.get("type") == "reasoning"]) == 25
    earlier = bodies[-2].get("input") or bodies[-2]["messages"]
    assert items[: len(earlier)] == earlier, "the vendor's prompt cache can be used"


async def test_a_chained_session_goes_on_after_a_call_that_came_too_late(server: OpenAIServer) -> None:
    config = {"base_url": server.base_url, "api_key": server.key, "enable_response_chaining": "true"}
    plan: dict[str, Any] = {
        "session": {
            "orchestrator": {"module": "loop-streaming", "config": {"max_iterations": 1}},
            "context": "context-simple",
        },
        "providers": [{"module": "provider-openai", "config": config}],
    }
    server.say(Said(calls=[("c1", "echo", {})]), Said("So far.", calls=[("c2", "echo", {})]), "Gone on.")

    async with AmplifierSession(plan) as session:
        await session.coordinator.mount("tools", FunctionTool("echo", lambda given: ToolResult(output="")), name="echo")
        answers = [await session.execute("Begin."), await session.execute("Go on.")]

    assert answers == ["So far.", "Gone on."]


def is_result(item: dict[str, Any]) -> bool:
    return item.get("type") == "function_call_output" or item.get("role") == "tool"


async def test_a_session_runs_against_a_local_server_without_a_key() -> None:
    with OpenAIServer(key=None, apis=[CHAT]) as local:
        plan: dict[str, Any] = {
            "session": {"orchestrator": "loop-streaming", "context": "context-simple"},
            "providers": [{"module": "provider-openai", "config": {"base_url": local.base_url, "model": "qwen3"}}],
        }
        async with AmplifierSession(plan) as session:
            answers = [await session.execute("Hi"), await session.execute("And?")]

        assert answers == ["Hello", "Hello"]
        assert local.sent()[-1]["model"] == "qwen3"
