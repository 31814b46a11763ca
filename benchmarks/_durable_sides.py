"""One side of `durable.py`: stored turns with one kind of agent, in the interpreter that has what it needs.

All sides run the same turn: the model asks for a tool some times, one call per answer, then says that all is well.
Model and tool answer at once, so what is left is the agent's own work and what it waits for the disk. After some turns
a new conversation begins, so the history that is read and written stays short on every side.

    python _durable_sides.py ours|langgraph|openai-agents <folder>
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

PROMPT, WELL = "Is all well?", "All is well."
TURNS = 8  # of a conversation

Run = Callable[[], Awaitable[str]]
Conversation = Callable[[int], Awaitable[Run]]
"""Begins a conversation whose turns call the tool so many times; returns what runs one turn and its answer."""


def our_model_and_tool() -> tuple[Any, Any]:
    from amplifier_core import ChatResponse, ProviderInfo, TextBlock, ToolCall, ToolCallBlock, ToolResult

    class Provider:
        name, priority, left = "mock", 1, 0

        def get_info(self) -> ProviderInfo:
            return ProviderInfo(id="mock", display_name="Mock", capabilities=[])

        async def list_models(self) -> list[Any]:
            return []

        async def complete(self, request: Any, **options: Any) -> ChatResponse:
            if not self.left:
                return ChatResponse(content=[TextBlock(text=WELL)])
            self.left -= 1
            call_id, arguments = f"call_{self.left}", {"place": self.left}
            return ChatResponse(
                content=[ToolCallBlock(id=call_id, name="look", input=arguments)],
                tool_calls=[ToolCall(id=call_id, name="look", arguments=arguments)],
            )

        def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
            return response.tool_calls or []

    class Look:
        name, description = "look", "Says that all is well."
        input_schema: dict[str, Any] = {"type": "object", "properties": {"place": {"type": "integer"}}}  # noqa: RUF012

        async def execute(self, input: dict[str, Any]) -> ToolResult:
            return ToolResult(success=True, output="all is well")

    return Provider(), Look()


async def ours(folder: Path) -> Conversation:
    """Sessions of a plan with a loop, a context, a provider and a tool, in a home with the settings as shipped."""
    import amplifierd

    plan = {
        "session": {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}},
        "providers": [{"module": "provider-mock", "config": {}}],
        "tools": [],
        "hooks": [],
        "agents": {},
    }
    work = folder / "work"
    work.mkdir()
    (work / "notes.md").write_text("- buy milk\n")
    home = amplifierd.open_home(folder / "home", offline=True)
    opened: list[Any] = []

    async def conversation(calls: int) -> Run:
        for session in opened:
            await session.close()
        session = await home.sessions.open(plan=plan, working_dir=work)
        opened[:] = [session]
        coordinator = session.runner.kernel.session.coordinator
        for name in list(coordinator.get("providers")):
            await coordinator.unmount("providers", name=name)
        provider, look = our_model_and_tool()
        await coordinator.mount("providers", provider, name="mock")
        await coordinator.mount("tools", look, name="look")

        async def run() -> str:
            provider.left = calls
            return str((await session.execute(PROMPT)).response)

        return run

    return conversation


async def langgraph(folder: Path) -> Conversation:
    """A graph of a model and its tools with `SqliteSaver`, each step stored before the next one."""
    import sqlite3

    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode

    left = threads = 0

    def model(state: MessagesState) -> dict[str, Any]:
        nonlocal left
        if not left:
            return {"messages": [AIMessage(WELL)]}
        left -= 1
        return {
            "messages": [AIMessage("", tool_calls=[{"id": f"call_{left}", "name": "look", "args": {"place": left}}])]
        }

    @tool
    def look(place: int) -> str:
        """Says that all is well."""
        return "all is well"

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([look]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    connection = sqlite3.connect(folder / "langgraph.db", check_same_thread=False)  # as `from_conn_string` does it
    agent = graph.compile(checkpointer=SqliteSaver(connection))

    async def conversation(calls: int) -> Run:
        nonlocal threads
        threads += 1
        config = {"configurable": {"thread_id": f"thread-{threads}"}, "recursion_limit": 1000}

        async def run() -> str:
            nonlocal left
            left = calls
            state = agent.invoke({"messages": [("user", PROMPT)]}, config, durability="sync")
            return str(state["messages"][-1].content)

        return run

    return conversation


async def openai_agents(folder: Path) -> Conversation:
    """An agent with one function tool and a `SQLiteSession`; tracing, which leaves the machine, is off."""
    from agents import Agent, Runner, SQLiteSession, function_tool, set_tracing_disabled
    from agents.items import ModelResponse
    from agents.models.interface import Model
    from agents.usage import Usage
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    set_tracing_disabled(True)
    left = sessions = 0

    class Scripted(Model):
        async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
            nonlocal left
            if left:
                left -= 1
                asked = {"id": f"item_{left}", "call_id": f"call_{left}", "arguments": json.dumps({"place": left})}
                output: Any = ResponseFunctionToolCall(name="look", type="function_call", **asked)
            else:
                text = ResponseOutputText(text=WELL, type="output_text", annotations=[])
                said = {"role": "assistant", "status": "completed", "type": "message", "content": [text]}
                output = ResponseOutputMessage(id="said", **said)
            return ModelResponse(output=[output], usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **options: Any) -> Any:
            raise NotImplementedError

    @function_tool
    def look(place: int) -> str:
        """Says that all is well."""
        return "all is well"

    agent = Agent(name="looks", model=Scripted(), tools=[look])

    async def conversation(calls: int) -> Run:
        nonlocal sessions
        sessions += 1
        session = SQLiteSession(f"session-{sessions}", folder / "agents.db")

        async def run() -> str:
            nonlocal left
            left = calls
            return str((await Runner.run(agent, PROMPT, session=session, max_turns=1000)).final_output)

        return run

    return conversation


SIDES = {"ours": ours, "langgraph": langgraph, "openai-agents": openai_agents}


async def timed(conversation: Conversation, calls: int) -> dict[str, list[float]]:
    """Run the turns of one conversation; returns the ms that each but the first took, by the clock and on the CPUs."""
    run = await conversation(calls)
    taken: dict[str, list[float]] = {"clock": [], "cpu": []}
    for _ in range(TURNS):
        cpu_s, clock_s = time.process_time(), time.perf_counter()
        answer = await run()
        taken["clock"].append((time.perf_counter() - clock_s) * 1e3)
        taken["cpu"].append((time.process_time() - cpu_s) * 1e3)
        if answer != WELL:
            raise RuntimeError(f"the turn went wrong: {answer!r}")
    return {name: samples[1:] for name, samples in taken.items()}


def main() -> None:
    side, folder = sys.argv[1], Path(sys.argv[2])
    with asyncio.Runner() as runner:
        conversation = runner.run(SIDES[side](folder))
        for line in sys.stdin:
            print(json.dumps(runner.run(timed(conversation, json.loads(line)["calls"]))), flush=True)


if __name__ == "__main__":
    main()
