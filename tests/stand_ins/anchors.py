"""The bundle `anchors` and every repository that it names, as local repositories made of small stand-ins.

What stands here of the original is its shape: the metadata, the includes, which modules it mounts from where and with
which keys, and its agents. Modules are stand-ins; with `ours`, those that this repository has are ours.
"""

from pathlib import Path

from git_repository import Repository

ROOT = Path(__file__).parents[2]
HOST = "https://github.com/microsoft/"
ADDRESS = f"git+{HOST}amplifier-foundation@main#subdirectory=bundles/anchors/bundle.md"
LATER_ADDRESS = f"git+{HOST}amplifier-foundation@main#subdirectory=bundles/anchors.md"

TOOLS = {
    **{
        f"tool-{name}": ("amplifier-module-tool-" + name, "")
        for name in ("filesystem", "bash", "web", "search", "todo")
    },
    "tool-apply-patch": ("amplifier-bundle-filesystem", "modules/tool-apply-patch"),
    "tool-delegate": ("amplifier-foundation", "modules/tool-delegate"),
    "tool-skills": ("amplifier-bundle-skills", "modules/tool-skills"),
    "tool-mode": ("amplifier-bundle-modes", "modules/tool-mode"),
    "tool-recipes": ("amplifier-bundle-recipes", "modules/tool-recipes"),
}
HOOKS = {
    "hooks-todo-reminder": ("amplifier-module-hooks-todo-reminder", ""),
    "hooks-todo-display": ("amplifier-module-hooks-todo-display", ""),
    "hooks-session-naming": ("amplifier-foundation", "modules/hooks-session-naming"),
    "hooks-mode": ("amplifier-bundle-modes", "modules/hooks-mode"),
    "hooks-approval": ("amplifier-module-hooks-approval", ""),
    "hooks-streaming-ui": ("amplifier-module-hooks-streaming-ui", ""),
    "hooks-status-context": ("amplifier-module-hooks-status-context", ""),
    "hook-redaction": ("amplifier-bundle-redaction", "modules/hook-redaction"),
    "hooks-deprecation": ("amplifier-foundation", "modules/hooks-deprecation"),
    "hooks-logging": ("amplifier-module-hooks-logging", ""),
    "hook-context-intelligence": ("amplifier-bundle-context-intelligence", "modules/hook-context-intelligence"),
    "hooks-routing": ("amplifier-bundle-routing-matrix", "modules/hooks-routing"),
}
MEMBERS = {
    "loop-streaming": ("amplifier-module-loop-streaming", ""),
    "context-simple": ("amplifier-module-context-simple", ""),
}
AGENTS = {
    "explorer": "[general, fast]",
    "architect": "[reasoning, general]",
    "builder": "[coding, general]",
    "debugger": "[coding, general]",
    "git-ops": "[fast, general]",
    "researcher": "[research, general]",
}
INTELLIGENCE = ("graph-analyst", "session-navigator", "server-data-ops")

_TOOL = """
from amplifier_core import ToolResult

__amplifier_module_type__ = "tool"


class Tool:
    name = {name!r}
    description = "A stand-in."
    input_schema = {{"type": "object", "properties": {{}}}}

    def __init__(self, coordinator):
        self.coordinator = coordinator

    def get_schema(self):
        return self.input_schema

    async def execute(self, input):
        if self.name == "delegate":
            spawn = self.coordinator.get_capability("session.spawn")
            agents, task = self.coordinator.config["agents"], input["instruction"]
            call = {{"parent_session": self.coordinator.session, "agent_configs": agents}}
            answer = await spawn(agent_name=input["agent"], instruction=task, **call)
            return ToolResult(output=answer["output"])
        return ToolResult(output={{"stand_in": self.name, "input": input}})


async def mount(coordinator, config=None):
    for name in {names!r}:
        tool = Tool(coordinator)
        tool.name = name
        await coordinator.mount("tools", tool, name=name)
    return {{"name": {name!r}, "version": "1"}}
"""
_HOOK = """
from amplifier_core import HookResult

__amplifier_module_type__ = "hook"


async def listen(event, data):
    return HookResult()


async def mount(coordinator, config=None):
    coordinator.session_state.setdefault("stand_ins", []).append({module!r})

    async def cleanup():
        coordinator.session_state["ended"] = [*coordinator.session_state.get("ended", []), {module!r}]

    return cleanup


async def on_session_ready(coordinator):
    coordinator.hooks.register("session:start", listen, priority=10, name={module!r})
    coordinator.session_state.setdefault("ready", []).append({module!r})
"""
_PYPROJECT = """[project]
name = "amplifier-module-{module}"
version = "1.0.0"
[project.entry-points."amplifier.modules"]
{module} = "{package}:mount"
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
"""
_NAMES = {
    "tool-filesystem": ["read_file", "write_file", "edit_file"],
    "tool-web": ["web_fetch", "web_search"],
    "tool-search": ["grep", "glob"],
    "tool-skills": ["load_skill"],
    "tool-apply-patch": ["apply_patch"],
}


def source_of(module: str, *, ref: str = "@main") -> str:
    repository, folder = {**TOOLS, **HOOKS, **MEMBERS}[module]
    return f"git+{HOST}{repository}{ref}" + (f"#subdirectory={folder}" if folder else "")


def module_files(module: str, *, ours: bool) -> dict[str, str | bytes | None]:
    """Return the files of a module, below its own folder."""
    own = ROOT / "modules" / {"hook-redaction": "hooks-redaction"}.get(module, module)
    package = f"amplifier_module_{module.replace('-', '_')}"
    if module in MEMBERS or (ours and own.is_dir() and own.name == module):
        kept = [file for file in own.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
        return {file.relative_to(own).as_posix(): file.read_bytes() for file in kept}
    names = _NAMES.get(module, [module.removeprefix("tool-")])
    code = _TOOL.format(name=names[0], names=names) if module.startswith("tool-") else _HOOK.format(module=module)
    return {"pyproject.toml": _PYPROJECT.format(module=module, package=package), f"{package}/__init__.py": code}


def make_mirrors(folder: Path, *, ours: bool) -> Path:
    """Make all the repositories below a folder; returns a configuration of git that finds them there."""
    files: dict[str, dict[str, str | bytes | None]] = {}
    for module, (repository, below) in {**TOOLS, **HOOKS, **MEMBERS}.items():
        prefix = f"{below}/" if below else ""
        own = {f"{prefix}{name}": content for name, content in module_files(module, ours=ours).items()}
        files.setdefault(repository, {}).update(own)
    files["amplifier-foundation"] |= _foundation_files()
    files["amplifier-bundle-context-intelligence"] |= _intelligence_files()
    files["amplifier-bundle-routing-matrix"] |= {
        "bundle.md": "---\nbundle: {name: routing-matrix, version: 1.0.0}\n---\n",
        "behaviors/routing.yaml": (
            "bundle: {name: routing-behavior, version: 1.0.0}\n"
            f"hooks:\n- {{module: hooks-routing, source: '{source_of('hooks-routing')}', "
            "config: {default_matrix: balanced}}\n"
            "context: {include: [routing-matrix:context/routing-instructions.md]}\n"
        ),
        "context/routing-instructions.md": "Name a model role when you delegate.\n",
    }
    for name, content in files.items():
        Repository(folder / name).commit(content)
    configuration = folder / "gitconfig"
    configuration.write_text(f'[url "{folder.as_uri()}/"]\n\tinsteadOf = {HOST}\n')
    return configuration


def _foundation_files() -> dict[str, str | bytes | None]:
    behaviors = {
        "streaming-ui": ("hooks-streaming-ui", "{ui: {show_thinking_stream: true, show_tool_lines: 5}}"),
        "status-context": ("hooks-status-context", "{}"),
        "redaction": ("hook-redaction", "{}"),
        "logging": (
            "hooks-logging",
            '{mode: session-only, session_log_template: "~/.amplifier/projects/{project}/{session_id}/events.jsonl"}',
        ),
    }
    files: dict[str, str | bytes | None] = {
        "bundle.md": "---\nbundle: {name: foundation, version: 2.0.0}\n---\n\nThe root bundle.\n",
        "skills/notes/SKILL.md": "---\nname: notes\ndescription: Writes notes. Use for notes.\n---\nWrite.\n",
        "bundles/anchors/bundle.md": _anchors("bundle: {name: anchors, version: 0.1.0}", max_tokens=True),
        "bundles/anchors.md": _anchors(
            "bundle: {name: anchors, version: 0.3.0, display_name: Anchors, namespace_root: anchors}", max_tokens=False
        ),
        "bundles/anchors/context/system.md": "Four principles.\n",
        "bundles/anchors/context/agent-baseline.md": "What agents share.\n",
    }
    for name, (module, config) in behaviors.items():
        entry = f"- {{module: {module}, source: '{source_of(module)}', config: {config}}}\n"
        if name == "redaction":
            relative = "../modules/hooks-deprecation"  # counted from the behaviour's file
            notice = "{bundle_name: hooks-redaction, sunset_date: '2026-10-01', require_evidence: true}"
            entry += f"- {{module: hooks-deprecation, source: {relative}, config: {notice}}}\n"
        files[f"behaviors/{name}.yaml"] = f"bundle: {{name: {name}-behavior, version: 1.0.0}}\nhooks:\n{entry}"
    for name, roles in AGENTS.items():
        files[f"bundles/anchors/agents/{name}.md"] = (
            f"---\nmeta: {{name: {name}, description: Does {name}.}}\nmodel_role: {roles}\n"
            f"tools:\n- {{module: tool-search, source: '{source_of('tool-search')}'}}\n---\n\nYou are {name}.\n"
        )
    return files


def _intelligence_files() -> dict[str, str | bytes | None]:
    source = source_of("hook-context-intelligence")
    entry = f"- {{module: hook-context-intelligence, source: '{source}', config: {{level: '${{CI_LEVEL:basic}}'}}}}\n"
    tools = "".join(f"- {{module: {name}, source: '{source_of(name)}'}}\n" for name in ("tool-delegate", "tool-skills"))
    agents = ", ".join(f"context-intelligence:{name}" for name in INTELLIGENCE)
    files: dict[str, str | bytes | None] = {
        "bundle.md": "---\nbundle: {name: context-intelligence, version: 1.0.0}\n---\n",
        "behaviors/context-intelligence-logging.yaml": (
            f"bundle: {{name: context-intelligence-logging, version: 1.0.0}}\nhooks:\n{entry}"
        ),
        "behaviors/context-intelligence-navigation.yaml": (
            "bundle: {name: context-intelligence-navigation, version: 1.0.0}\n"
            f"tools:\n{tools}agents: {{include: [{agents}]}}\n"
        ),
    }
    for name in INTELLIGENCE:
        files[f"agents/{name}.md"] = f"---\nmeta: {{name: {name}, description: Does {name}.}}\n---\n\nYou are {name}.\n"
    return files


def _anchors(head: str, *, max_tokens: bool) -> str:
    configs = {
        "tool-delegate": "{features: {self_delegation: {enabled: true}, session_resume: {enabled: true}, "
        "context_inheritance: {enabled: true, max_turns: 10}}, settings: {exclude_tools: [tool-delegate]}}",
        "tool-skills": "{skills: ['git+https://github.com/microsoft/amplifier-foundation@main#subdirectory=skills'], "
        "visibility: {enabled: false}}",
        "tool-mode": "{gate_policy: warn}",
        "tool-recipes": "{session_dir: '~/.amplifier/projects/{project}/recipe-sessions', auto_cleanup_days: 7}",
        "hooks-todo-reminder": "{inject_role: user, priority: 10}",
        "hooks-todo-display": "{show_progress_bar: true, show_border: true}",
        "hooks-session-naming": "{initial_trigger_turn: 2, update_interval_turns: 5}",
        "hooks-mode": "{search_paths: []}",
        "hooks-approval": "{rules: [], default_action: continue, policy_driven_only: true}",
    }

    def entry(module: str) -> str:
        ref = "" if module == "hooks-approval" else "@main"
        config = f", config: {configs[module]}" if module in configs else ""
        return f"- {{module: {module}, source: '{source_of(module, ref=ref)}'{config}}}\n"

    own_hooks = [name for name in HOOKS if name in configs]
    included = [
        f"git+{HOST}amplifier-foundation@main#subdirectory=behaviors/{name}.yaml"
        for name in ("streaming-ui", "status-context", "redaction", "logging")
    ]
    included += [
        f"git+{HOST}amplifier-bundle-context-intelligence@main#subdirectory=behaviors/context-intelligence-{name}.yaml"
        for name in ("logging", "navigation")
    ]
    included.append(f"git+{HOST}amplifier-bundle-routing-matrix@main#subdirectory=behaviors/routing.yaml")
    limit = "max_tokens: 300000, " if max_tokens else ""
    return "\n".join(
        [
            f"---\n{head}",
            "includes:",
            *(f"- bundle: {address}" for address in included),
            "session:",
            "  raw: true",
            "  orchestrator:",
            f"    module: loop-streaming\n    source: {source_of('loop-streaming')}",
            "    config: {extended_thinking: true}",
            "  context:",
            f"    module: context-simple\n    source: {source_of('context-simple')}",
            f"    config: {{{limit}compact_threshold: 0.8, auto_compact: true}}",
            f"tools:\n{''.join(map(entry, TOOLS))}".rstrip(),
            f"hooks:\n{''.join(map(entry, own_hooks))}".rstrip(),
            f"agents: {{include: [{', '.join(f'anchors:{name}' for name in AGENTS)}]}}",
            "---\n\n@anchors:context/system.md\n",
        ]
    )
