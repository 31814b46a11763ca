"""What the model is shown: names and schemas are a contract."""

from typing import Any


def bare(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without its descriptions."""
    properties = {
        name: {key: value for key, value in rule.items() if key != "description"}
        for name, rule in schema["properties"].items()
    }
    return {**schema, "properties": properties}


async def test_the_tools_come_in_their_order_with_their_schemas(files: Any) -> None:
    text = {"type": "string"}

    assert {name: bare(tool.get_schema()) for name, tool in files.tools.items()} == {
        "read_file": {
            "type": "object",
            "properties": {"file_path": text, "offset": {"type": "integer"}, "limit": {"type": "integer"}},
            "required": ["file_path"],
        },
        "write_file": {
            "type": "object",
            "properties": {"file_path": text, "content": text},
            "required": ["file_path", "content"],
        },
        "edit_file": {
            "type": "object",
            "properties": {
                "file_path": text,
                "old_string": text,
                "new_string": text,
                "replace_all": {"type": "boolean", "default": False},
            },
            "required": ["file_path", "old_string", "new_string"],
        },
    }
    assert list(files.tools) == ["read_file", "write_file", "edit_file"]
