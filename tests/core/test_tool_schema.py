"""The schema of a tool's input, in either spelling."""

from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_core.utils.tool_schema import tool_schema

ANYTHING = {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("tool", "schema"),
    [
        (SimpleNamespace(input_schema={"a": 1}, get_schema=lambda: {"b": 2}), {"a": 1}),
        (SimpleNamespace(input_schema=None, get_schema=lambda: {"b": 2}), {"b": 2}),
        (SimpleNamespace(get_schema=lambda: {"b": 2}), {"b": 2}),
        (SimpleNamespace(get_schema=lambda: None), ANYTHING),
        (SimpleNamespace(get_schema="text"), ANYTHING),
        (SimpleNamespace(), ANYTHING),
    ],
)
def test_the_schema_comes_from_wherever_the_tool_has_it(tool: Any, schema: dict[str, Any]) -> None:
    assert tool_schema(tool) == schema
