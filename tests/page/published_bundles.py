"""Bundles in the shapes that published ones have, each in a real git repository with a module of its own.

None of them names a provider, and most have no session: an application gives them that. Each has a tool `greet`, whose
answer says which repository it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from git_repository import Repository

_MODULE = """\
from amplifier_core import ToolResult

class Greet:
    name = "greet"
    description = "Greets someone."
    effects = frozenset({"read"})
    input_schema = {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}

    def __init__(self, config):
        self.config = config

    async def execute(self, input):
        return ToolResult(output=f"{self.config.get('word', 'Hello')}, {input['who']}, from SHAPE")

async def mount(coordinator, config=None):
    await coordinator.mount("tools", Greet(config or {}), name="greet")
"""
_PROJECT = """\
[project]
name = "amplifier-module-tool-greet"
version = "0.1.0"
dependencies = ["amplifier-core @ git+https://github.com/microsoft/amplifier-core@main"]
[project.entry-points."amplifier.modules"]
tool-greet = "amplifier_module_tool_greet:mount"
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
"""
_SESSION = "session: {orchestrator: {module: loop-streaming}, context: {module: context-simple}}\n"


@dataclass(frozen=True)
class Shape:
    """A shape of bundle: its files, and what names it behind the repository's address."""

    files: Mapping[str, str]
    behind: str = "@main"
    answer: str = "Hello, Ada, from {name}"
    told: str = ""
    """What the model is told besides the prompt."""
    agents: tuple[str, ...] = ()
    is_behaviour: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)


def _bundle(
    head: str, body: str = "", *, tool: str = "{git}@main#subdirectory=modules/tool-greet", more: str = ""
) -> str:
    tools = f"tools:\n- module: tool-greet\n  source: {tool}\n" if tool else ""
    return f"---\nbundle: {{{head}}}\n{tools}{more}---\n{body}"


_CONTEXT = "context: {include: [context/rules.md, 'mentioning:context/more.md']}\n"
_AGENT = """\
---
meta: {name: scout, description: Looks around.}
model_role: [fast, general]
provider_preferences: [{provider: anthropic, model: claude-haiku-*}]
tools: [{module: tool-search}]
---
Look around.
"""

SHAPES: Mapping[str, Shape] = {
    "behaviour": Shape({"bundle.md": _bundle("name: behaving, version: 1.0.0")}, is_behaviour=True),
    "providerless": Shape(
        {"bundle.md": _bundle("name: whole", "You greet people.\n", more=_SESSION)}, told="You greet people."
    ),
    "sessionless": Shape({"bundle.md": _bundle("name: bare", "You are bare.\n")}, told="You are bare."),
    "fragment": Shape(
        {"bundle.md": _bundle("name: root", tool=""), "bundles/agent.md": _bundle("name: agent", "You are a file.\n")},
        behind="@main#subdirectory=bundles/agent.md",
        told="You are a file.",
    ),
    "nested": Shape(
        {
            "bundle.md": _bundle("name: outer", "You are the root.\n", tool=""),
            "behaviors/greet.yaml": _bundle("name: greeting").strip("-\n") + "\n",
            "bundles/inner/bundle.md": _bundle(
                "name: inner", "You are nested.\n", tool="", more="includes: [{bundle: 'outer:behaviors/greet'}]\n"
            ),
        },
        behind="@main#subdirectory=bundles/inner",
        told="You are nested.",
    ),
    "namespace": Shape(
        {
            "bundle.md": _bundle("name: house", tool=""),
            "bundles/anchor.md": _bundle(
                "name: anchor, display_name: Anchor, namespace_root: anchor",
                "@anchor:context/system.md\n",
                more="agents: {include: ['anchor:scout']}\n",
            ),
            "bundles/anchor/context/system.md": "You hold the ship.\n",
            "bundles/anchor/agents/scout.md": _AGENT,
        },
        behind="@main#subdirectory=bundles/anchor.md",
        told="You hold the ship.",
        agents=("anchor:scout",),
    ),
    "agents": Shape(
        {
            "bundle.md": _bundle(
                "name: crew",
                "You have a crew.\n",
                more="agents:\n  include: ['crew:scout']\n  inline: {description: Written here., model_role: coding}\n",
            ),
            "agents/scout.md": _AGENT,
        },
        agents=("crew:scout", "inline"),
    ),
    "mentions": Shape(
        {
            "bundle.md": _bundle("name: mentioning", "Follow @mentioning:context/body.md.\n", more=_CONTEXT),
            "context/rules.md": "Rule one.\n",
            "context/more.md": "Rule two.\n",
            "context/body.md": "Rule three.\n",
        },
        told="Rule one.\nRule two.\nRule three.",
    ),
    "folders": Shape(
        {
            "bundle.md": _bundle(
                "name: folders, author: someone, license: MIT",
                "You have folders.\n",
                more="modes: {search_paths: [modes]}\nskills: [skills]\nrecipes: {}\nproviders: []\n",
            ),
            "modes/careful.md": "---\nmode: {name: careful, description: Careful.}\n---\nBe careful.\n",
            "skills/knots/SKILL.md": "---\nname: knots\ndescription: Ties knots.\n---\nTie it.\n",
        }
    ),
    "relative": Shape(
        {
            "bundle.md": _bundle("name: near", "You are near.\n", tool="./modules/tool-greet"),
            "pyproject.toml": "[project]\nname = 'near-bundle'\nversion = '1.0.0'\n",
        }
    ),
    "refless": Shape(
        {"bundle.md": _bundle("name: refless", "No ref.\n", tool="{git}#subdirectory=modules/tool-greet")}, behind=""
    ),
    "defaults": Shape(
        {
            "bundle.md": _bundle(
                "name: defaults",
                "You have defaults.\n",
                more="  config: {word: '${GREETING_WORD:Ahoy}', others: ['${SOME_X:-a}', '${NOT_SET_ANYWHERE}']}\n",
            )
        },
        answer="Ahoy, Ada, from {name}",
    ),
}


def make_repositories(directory: Path) -> dict[str, str]:
    """Make a repository of each shape, and return the source of its bundle."""
    return {name: _source(directory / name, name, shape) for name, shape in SHAPES.items()}


def _source(path: Path, name: str, shape: Shape) -> str:
    repository = Repository(path)
    module = {
        "modules/tool-greet/pyproject.toml": _PROJECT,
        "modules/tool-greet/amplifier_module_tool_greet/__init__.py": _MODULE.replace("SHAPE", name),
    }
    repository.commit(
        {**module, **{file: text.replace("{git}", repository.source) for file, text in shape.files.items()}}
    )
    return f"{repository.source}{shape.behind}"
