"""Agent mode: plain requests become calls of the tools that are offered, and their results become the answer."""

import json
import string
from typing import Any

import pytest
from amplifier_module_provider_mock.agent import find_steps, split_steps
from hypothesis import given
from hypothesis import strategies as st

ALL = ("read_file", "glob", "bash", "grep")


@pytest.fixture
def agent(desk: Any) -> Any:
    return desk({"mode": "agent"})


@pytest.mark.parametrize(
    ("prompt", "tool", "arguments"),
    [
        ("read README.md", "read_file", {"file_path": "README.md"}),
        ("Show src/main.py", "read_file", {"file_path": "src/main.py"}),
        ("open ~/notes", "read_file", {"file_path": "~/notes"}),
        ("cat `my file.txt`", "read_file", {"file_path": "my file.txt"}),
        ("Please read README.md.", "read_file", {"file_path": "README.md"}),
        ("Could you please read ../a.md?", "read_file", {"file_path": "../a.md"}),
        ("read README.md and summarise it", "read_file", {"file_path": "README.md"}),
        ("list files", "glob", {"pattern": "*", "path": "."}),
        ("list the files here", "glob", {"pattern": "*", "path": "."}),
        ("list files in src", "glob", {"pattern": "*", "path": "src"}),
        ("list the files in the src directory", "glob", {"pattern": "*", "path": "src"}),
        ("list src", "glob", {"pattern": "*", "path": "src"}),
        ("ls", "glob", {"pattern": "*", "path": "."}),
        ("ls -la 'my dir'", "glob", {"pattern": "*", "path": "my dir"}),
        ("What files are in src/?", "glob", {"pattern": "*", "path": "src/"}),
        ("what files are there?", "glob", {"pattern": "*", "path": "."}),
        ("run `pytest -q`", "bash", {"command": "pytest -q"}),
        ("run the command `pytest -q` for me", "bash", {"command": "pytest -q"}),
        ("run: make test", "bash", {"command": "make test"}),
        ("execute ls .", "bash", {"command": "ls ."}),
        ('execute "my prog" --flag', "bash", {"command": '"my prog" --flag'}),
        ("run `a; b then c`", "bash", {"command": "a; b then c"}),
        ("search for X", "grep", {"pattern": "X", "path": ".", "output_mode": "content"}),
        ("search for a+b in src", "grep", {"pattern": r"a\+b", "path": "src", "output_mode": "content"}),
        ("grep 'to do' in \"my dir\"", "grep", {"pattern": "to do", "path": "my dir", "output_mode": "content"}),
        ("find foo(bar) in lib.py", "grep", {"pattern": r"foo\(bar\)", "path": "lib.py", "output_mode": "content"}),
        ("can you search for TODO?", "grep", {"pattern": "TODO", "path": ".", "output_mode": "content"}),
    ],
)
async def test_a_plain_request_becomes_a_tool_call(
    agent: Any, calls: Any, prompt: str, tool: str, arguments: dict[str, Any]
) -> None:
    response = await agent.ask(prompt, tools=ALL)

    assert calls(response) == [(tool, arguments)]
    assert response.tool_calls[0].id == "call_mock_1_0"
    assert [block.type for block in response.content] == ["text", "tool_call"]


@pytest.mark.parametrize(
    "prompt", ["already done", "read it to me", "run pytest", "find my keys", "what is a file?", "spread butter", ""]
)
async def test_anything_else_is_answered_with_what_the_provider_understands(agent: Any, prompt: str) -> None:
    response: Any = await agent.ask(prompt, tools=ALL)

    assert response.tool_calls is None
    assert "offline provider" in response.text
    assert all(kind in response.text for kind in ("- read ", "- list ", "- run ", "- search for "))
    assert "model provider" in response.text


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        (("bash", "read_file", "glob"), ("glob", {"pattern": "*", "path": "my dir"})),
        (("bash", "read_file"), ("read_file", {"file_path": "my dir"})),
        (("bash",), ("bash", {"command": "ls -la 'my dir'"})),
    ],
)
async def test_files_are_listed_with_the_best_tool_there_is(
    agent: Any, calls: Any, offered: tuple[str, ...], expected: Any
) -> None:
    assert calls(await agent.ask("list files in `my dir`", tools=offered)) == [expected]


async def converse(desk: Any, prompt: str, tools: dict[str, str]) -> tuple[list[str], str]:
    """Play a turn with tools that answer with fixed texts; returns the tools called and the final text."""
    messages: list[Any] = [{"role": "user", "content": prompt}]
    called: list[str] = []
    while True:
        response: Any = await desk.ask(*messages, tools=tuple(tools))
        if not response.tool_calls:
            return called, response.text
        messages.append({"role": "assistant", "content": [block.model_dump() for block in response.content]})
        for call in response.tool_calls:
            called.append(call.name)
            messages.append({"role": "tool", "content": tools[call.name], "tool_call_id": call.id})
        messages.append({"role": "user", "content": "<system-reminder>read on</system-reminder>"})
        assert len(called) < 10


async def test_steps_run_one_after_another_and_the_final_text_quotes_the_results(agent: Any) -> None:
    tools = {
        "read_file": json.dumps({"file_path": "notes.md", "content": "     1\tbuy milk", "total_lines": 1}),
        "bash": json.dumps({"stdout": "1 notes.md\n", "stderr": "", "returncode": 0}),
    }

    called, text = await converse(agent, "read notes.md then run `wc -l notes.md`", tools)

    assert called == ["read_file", "bash"]
    assert "buy milk" in text
    assert "1 notes.md" in text
    assert "failed" not in text
    assert agent.provider.call_count == 3


async def test_a_step_whose_tool_is_not_offered_is_named_and_the_turn_ends(agent: Any) -> None:
    called, text = await converse(agent, "read notes.md then run `wc -l notes.md`", {"read_file": "milk"})

    assert called == ["read_file"]
    assert "milk" in text
    assert "bash, which is not offered" in text


@pytest.mark.parametrize(
    "result",
    [
        "Error executing tool: no",
        "Path not found: gone.md",
        "Denied by hook: read-only",
        json.dumps({"stdout": "", "stderr": "boom", "returncode": 2}),
        json.dumps({"error": "Tool execution was cancelled by user", "cancelled": True}),
    ],
)
async def test_a_failed_result_is_reported_as_failed(agent: Any, result: str) -> None:
    _, text = await converse(agent, "run `x`", {"bash": result})

    assert text.startswith("bash failed:")


async def test_only_the_first_twenty_lines_of_a_result_are_shown(agent: Any) -> None:
    _, text = await converse(agent, "run `x`", {"bash": "\n".join(f"line {n}" for n in range(1, 31))})

    assert "line 20\n… and 10 more lines" in text
    assert "line 21" not in text


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({"results": [{"file": "/a.py", "line_number": 3, "content": "x = 1"}]}, "/a.py:3:x = 1"),
        ({"matches": [{"path": "/a.py", "type": "file", "size": 3}]}, "/a.py"),
        ({"matches": []}, "(nothing found)"),
        ({"answer": 42}, "answer: 42"),
    ],
)
async def test_results_are_shown_as_a_person_reads_them(agent: Any, result: dict[str, Any], shown: str) -> None:
    _, text = await converse(agent, "grep x", {"grep": json.dumps(result)})

    assert text == f"grep:\n{shown}"


async def test_same_request_same_answer(desk: Any) -> None:
    one, other = desk({"mode": "agent"}), desk({"mode": "agent"})

    assert await one.ask("list files", tools=ALL) == await other.ask("list files", tools=ALL)


async def test_an_earlier_turn_does_not_count(agent: Any, calls: Any) -> None:
    call = {"id": "1", "tool": "bash", "arguments": {"command": "a"}}
    earlier = [
        "run `a`",
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "x", "tool_call_id": "1"},
        {"role": "assistant", "content": "done"},
    ]

    assert calls(await agent.ask(*earlier, "run `b`", tools=ALL)) == [("bash", {"command": "b"})]


def test_steps_are_split_at_line_ends_semicolons_and_then_but_not_inside_quotes() -> None:
    text = "read a.md then run `x; y\nthen z`; list 'a then b'\nsay \"a;b\" don't then won't strengthen"

    assert split_steps(text) == [
        "read a.md",
        "run `x; y\nthen z`",
        "list 'a then b'",
        'say "a;b" don\'t',
        "won't strengthen",
    ]


words = st.text(alphabet=string.ascii_letters + string.digits + " ./~`'\";\n?!,:-()", max_size=80)


@given(words)
def test_any_prompt_is_understood_or_not_but_never_crashes(prompt: str) -> None:
    for step in find_steps(prompt):
        assert step.ways[0].tool in ALL


parts = st.text(alphabet=string.ascii_letters + string.digits + "./-_")


@given(st.tuples(parts, parts).map(".".join))
def test_a_path_in_backticks_is_read_as_it_stands(path: str) -> None:
    (step,) = find_steps(f"read `{path}`")

    assert step.ways[0].arguments == {"file_path": path}
