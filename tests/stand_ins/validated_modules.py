"""Modules to validate: the source of a good one of each type, and a folder to write it in."""

from pathlib import Path

TOOL = """
class Echo:
    name = "echo"
    description = "Says it again."
    async def execute(self, input): ...

async def mount(coordinator, config):
    await coordinator.mount("tools", Echo())
"""

SOURCES = {
    "provider": """
from amplifier_core.models import ProviderInfo
class Acme:
    name = "acme"
    def get_info(self): return ProviderInfo(id="acme", display_name="Acme")
    async def list_models(self): return []
    async def complete(self, request, **kwargs): ...
    def parse_tool_calls(self, response): return []
async def mount(coordinator, config):
    await coordinator.mount("providers", Acme())
""",
    "tool": TOOL,
    "hook": """
async def handler(event, data): ...
async def mount(coordinator, config):
    return coordinator.hooks.register("tool:pre", handler)
""",
    "orchestrator": """
class Loop:
    async def execute(self, prompt, context, providers, tools, hooks): return "done"
async def mount(coordinator, config):
    await coordinator.mount("session", Loop(), name="orchestrator")
""",
    "context": """
from amplifier_core.testing import MockContextManager
async def mount(coordinator, config):
    await coordinator.mount("context", MockContextManager())
""",
}


def write_module(folder: Path, init: str, package: str | None = None, **files: str) -> Path:
    """Write a module folder `amplifier-module-<id>` with its package; each file is given without its suffix."""
    directory = folder / (package or folder.name.replace("-", "_"))
    directory.mkdir(parents=True)
    for name, text in {"__init__": init, **files}.items():
        (directory / f"{name}.py").write_text(text)
    return folder
