"""What the model is shown, and how the configuration reaches the tools."""

from typing import Any

import pytest
from amplifier_module_tool_search import mount

from amplifier_core.testing import MockCoordinator


def bare(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without its descriptions."""
    properties = {
        name: {key: value for key, value in rule.items() if key != "description"}
        for name, rule in schema["properties"].items()
    }
    return {**schema, "properties": properties}


async def mounted(config: dict[str, Any]) -> dict[str, Any]:
    coordinator = MockCoordinator()
    await mount(coordinator, config)
    tools: dict[str, Any] = coordinator.get("tools")
    return tools


async def test_the_tools_have_their_schemas() -> None:
    tools = await mounted({})
    text, number, flag = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}

    assert list(tools) == ["grep", "glob"]
    assert bare(tools["grep"].get_schema()) == {
        "type": "object",
        "properties": {
            "pattern": text,
            "path": text,
            "output_mode": {"type": "string", "enum": ["content", "files_with_matches", "count"]},
            "-i": flag,
            "-n": flag,
            "-A": number,
            "-B": number,
            "-C": number,
            "glob": text,
            "type": text,
            "multiline": flag,
            "head_limit": number,
            "offset": number,
            "include_ignored": flag,
        },
        "required": ["pattern"],
    }
    assert list(tools["grep"].input_schema["properties"])[:4] == ["pattern", "path", "output_mode", "-i"]
    assert bare(tools["glob"].get_schema()) == {
        "type": "object",
        "properties": {
            "pattern": text,
            "path": text,
            "type": {"type": "string", "enum": ["file", "dir", "any"]},
            "exclude": {"type": "array", "items": {"type": "string"}},
            "include_ignored": flag,
        },
        "required": ["pattern"],
    }


async def test_a_tools_own_keys_win_and_the_modules_fill_in(search: Any) -> None:
    for path in ("skip/a.txt", "b/c.txt", "b/d.txt"):
        search.write(path)
    shared = {"working_dir": str(search.folder), "exclusions": ["skip"], "max_results": 1}

    tools = await mounted({**shared, "grep": {"exclusions": ["b"]}})

    grep = await tools["grep"].execute({"pattern": "needle"})
    glob = await tools["glob"].execute({"pattern": "**/*.txt"})
    assert search.relative(grep.output["files"]) == ["skip/a.txt"]
    assert (glob.output["total_files"], glob.output["count"]) == (2, 1)


async def test_values_that_do_not_fit_are_replaced_and_reported(caplog: pytest.LogCaptureFixture, search: Any) -> None:
    search.write("a.txt", "needle\n" * 600)
    config = {
        "working_dir": str(search.folder),
        "timeout": 0,
        "grep": {"default_limits": {"content": -1, "contents": 3}, "max_line_char": 10},
        "glob": 7,
        "colour": "red",
    }

    tools = await mounted(config)
    result = await tools["grep"].execute({"pattern": "needle", "output_mode": "content"})

    assert result.output["matches_count"] == 500
    warnings = "\n".join(record.message for record in caplog.records if record.levelname == "WARNING")
    for part in ("'timeout'", "'content'", "'contents'", "'max_line_char'", "did you mean 'max_line_chars'", "'glob'"):
        assert part in warnings
    assert "'colour'" in warnings


async def test_allowed_paths_that_are_no_list_allow_nothing(search: Any) -> None:
    tools = await mounted({"working_dir": str(search.folder), "allowed_paths": 7})

    for tool in tools.values():
        result = await tool.execute({"pattern": "x"})
        assert result.error["code"] == "access_denied"
