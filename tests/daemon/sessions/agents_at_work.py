"""Agents for the tests of sessions: one description, written as a profile, as a bundle and as a plan."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

import amplifierd
from amplifierd.home import Home

Kind = Literal["profile", "bundle", "plan"]
KINDS: tuple[Kind, ...] = ("profile", "bundle", "plan")


@dataclass
class Agent:
    """What an agent is made of; `script` is what its model says, call by call."""

    script: Sequence[Any] = ("Done.",)
    tools: Sequence[Mapping[str, Any]] = ({"module": "tool-filesystem"},)
    hooks: Sequence[Mapping[str, Any]] = ()
    agents: Mapping[str, Any] = field(default_factory=dict)
    orchestrator: str | Mapping[str, Any] = "loop-streaming"
    provider: Mapping[str, Any] = field(default_factory=dict)
    other_providers: Sequence[Mapping[str, Any]] = ()
    instruction: str = "You are a test agent."

    def sections(self) -> dict[str, Any]:
        provider = {"script": list(self.script), "on_exhausted": "canned", "tool_trigger": None, **self.provider}
        named = {"module": self.orchestrator} if isinstance(self.orchestrator, str) else dict(self.orchestrator)
        return {
            "session": {"orchestrator": named, "context": {"module": "context-simple"}},
            "providers": [{"module": "provider-mock", "config": provider}, *map(dict, self.other_providers)],
            "tools": [dict(tool) for tool in self.tools],
            "hooks": [dict(hook) for hook in self.hooks],
            "agents": dict(self.agents),
        }

    def source(self, home: Home, kind: Kind, folder: Path) -> dict[str, Any]:
        """Write the agent down and return what `sessions.open` takes for it."""
        sections = self.sections()
        if kind == "plan":
            return {"plan": sections}
        if kind == "profile":
            file = home.paths.own_profiles / "worker.md"
            head = {"profile": {"name": "worker", "version": "1.0.0", "description": "At work", "schema_version": 2}}
            _write(file, {**head, **{key: value for key, value in sections.items() if value}}, self.instruction)
            return {"profile": "local/worker"}
        file = folder / "bundle.md"
        agents = sections.pop("agents")
        named = {"agents": {name: dict(agent) for name, agent in agents.items()}} if agents else {}
        _write(file, {"bundle": {"name": "worker", "version": "1.0.0"}, **sections, **named}, self.instruction)
        return {"bundle": file.as_uri()}


def _write(file: Path, front: Mapping[str, Any], body: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    plain = json.loads(json.dumps(front))
    file.write_text(f"---\n{yaml.safe_dump(plain, sort_keys=False)}---\n\n{body}\n")


def open_home(folder: Path) -> Home:
    return amplifierd.open_home(folder / "home", offline=True)


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    """Return a step of a script: the model calls a tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}
