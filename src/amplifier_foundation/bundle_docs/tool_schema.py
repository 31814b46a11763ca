"""What a model is shown of a module's tools, in tokens."""

from pathlib import Path

from amplifier_foundation.modules.declared_tools import declared_tools

from .texts import estimate_tokens


def estimate_module_tool_tokens(module_dir: str | Path) -> int:
    """Return the tokens of the names, descriptions and literal input schemas that a tool module's source declares."""
    tools = declared_tools(Path(module_dir))
    return sum(estimate_tokens(text) for tool in tools for text in (tool.name, tool.description, tool.schema))
