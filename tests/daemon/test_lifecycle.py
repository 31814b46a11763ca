"""The three phases as their design documents print them: from `collections.yaml` to a plan that the kernel runs."""

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import warm_python
from git_repository import Repository, use_plain_git

import amplifierd
from amplifier_core import AmplifierSession

LOOP = """
class Loop:
    def __init__(self, config):
        self.config = config
    async def execute(self, prompt, context, providers, tools, hooks, **kwargs):
        await context.add_message({"role": "user", "content": prompt})
        return f"{len(providers)} provider, {len(tools)} tools, {self.config}"

async def mount(coordinator, config=None):
    await coordinator.mount("orchestrator", Loop(config or {}))
"""
CONTEXT = """
class Context:
    def __init__(self):
        self.messages = []
    async def add_message(self, message):
        self.messages.append(message)
    async def get_messages(self):
        return list(self.messages)
    async def get_messages_for_request(self, token_budget=None, provider=None):
        return list(self.messages)
    async def set_messages(self, messages):
        self.messages = list(messages)
    async def clear(self):
        self.messages.clear()

async def mount(coordinator, config=None):
    await coordinator.mount("context", Context())
"""
PROVIDER = """
from amplifier_core import ChatResponse, ProviderInfo

class Provider:
    name = "anthropic"
    def get_info(self):
        return ProviderInfo(id="anthropic", display_name="A stand-in")
    async def list_models(self):
        return []
    async def complete(self, request, **kwargs):
        return ChatResponse(content=[])
    def parse_tool_calls(self, response):
        return []

async def mount(coordinator, config=None):
    await coordinator.mount("providers", Provider(), name="anthropic")
"""
TOOL = """
from amplifier_core import ToolResult

class Tool:
    name = "web_search"
    description = "Searches"
    input_schema = {"type": "object"}
    async def execute(self, input):
        return ToolResult(output="x")

async def mount(coordinator, config=None):
    await coordinator.mount("tools", Tool(), name="web_search")
"""
HOOK = "__amplifier_module_type__ = 'hook'\nasync def mount(coordinator, config=None):\n    return None\n"

MODULES = {
    "loop-streaming": LOOP,
    "context-simple": CONTEXT,
    "provider-anthropic": PROVIDER,
    "tool-web-search": TOOL,
    "hook-logging": HOOK,
}


def module_files(**sources: str) -> dict[str, str]:
    files = {}
    for module, code in {**MODULES, **sources}.items():
        package = f"amplifier_module_{module.replace('-', '_')}"
        files[f"{package}/__init__.py"] = code
    return files


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    use_plain_git(monkeypatch)


class World:
    """The repositories of the documents, and a home that knows only `collections.yaml`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules = Repository(root / "remote" / "modules.git")
        self.modules_commit = self.modules.commit(module_files(), tag="v1.0.0")
        self.agents = Repository(root / "remote" / "agents.git")
        expert = "You are an expert software engineer..."
        self.agents_commit = self.agents.commit({"experts/code.md": expert}, tag="v1.0.0")
        self.docs = Repository(root / "remote" / "docs.git")
        self.docs.commit({"docs/USAGE.md": "Usage", "docs/subdir/EXTRA.md": "Extra"})
        self.profiles = Repository(root / "remote" / "profiles.git")
        self.profiles_commit = self.profiles.commit({"base/profile.md": self.profile()}, tag="v1.0.0")
        self.home = amplifierd.open_home(root / ".amplifierd", shipped_collection=root / "nothing shipped")
        self.register(f"git+{self.profiles.path.as_uri()}@v1.0.0")

    def register(self, source: str) -> None:
        self.home.paths.share.mkdir(parents=True, exist_ok=True)
        self.home.paths.collections_file.write_text(f"collections:\n  foundation:\n    source: {source}\n")

    def ref(self, module: str) -> str:
        return f"git+{self.modules.path.as_uri()}@v1.0.0#amplifier_module_{module.replace('-', '_')}"

    def profile(self, *, tokens: int = 200000) -> str:
        return f"""---
profile:
  name: base
  version: 1.1.0
  description: Base configuration with core functionality
  schema_version: 2

session:
  orchestrator:
    module: loop-streaming
    source: {self.ref("loop-streaming")}
    config:
      max_iterations: 10
  context:
    module: context-simple
    source: {self.ref("context-simple")}
    config:
      max_tokens: {tokens}

providers:
- module: provider-anthropic
  source: {self.ref("provider-anthropic")}
  config:
    model: claude-3-5-sonnet-20241022
    api_key: ${{ANTHROPIC_API_KEY}}

tools:
- module: tool-web-search
  source: {self.ref("tool-web-search")}

hooks:
- module: hook-logging
  source: {self.ref("hook-logging")}
  config:
    level: INFO

agents:
  code-expert: git+{self.agents.path.as_uri()}@v1.0.0#experts/code.md

context:
  docs: git+{self.docs.path.as_uri()}@main#subdirectory=docs

ui:
  show_tool_lines: 5
---

@docs:USAGE.md

# Base Profile
"""

    @property
    def published(self) -> Path:
        return self.home.paths.share / "profiles" / "foundation" / "base"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> World:
    """One whose collections were synced and compiled, for tests that only look."""
    with pytest.MonkeyPatch.context() as environment:
        use_plain_git(environment)
        world = World(tmp_path_factory.mktemp("synced"))
        asyncio.run(world.home.collections.sync())
    return world


async def test_phase_one_extracts_profiles_and_caches_commits(synced: World) -> None:
    assert (synced.published / "profile.md").read_text() == synced.profile()
    assert (synced.home.paths.cache / "git" / synced.profiles_commit / "base" / "profile.md").is_file()
    assert not (synced.home.paths.cache / "git" / synced.profiles_commit / ".git").exists()


async def test_phase_two_organises_resources_by_mount_type(synced: World) -> None:
    files = {
        path.relative_to(synced.published).as_posix()
        for path in synced.published.rglob("*")
        if path.is_file() and not path.relative_to(synced.published).as_posix().startswith(".")
    }
    assert files == {
        "profile.md",
        "profile.lock",
        "plan.json",
        "instruction.md",
        "origins.json",
        "orchestrator/loop-streaming/amplifier_module_loop_streaming/__init__.py",
        "context/context-simple/amplifier_module_context_simple/__init__.py",
        "providers/provider-anthropic/amplifier_module_provider_anthropic/__init__.py",
        "tools/tool-web-search/amplifier_module_tool_web_search/__init__.py",
        "hooks/hook-logging/amplifier_module_hook_logging/__init__.py",
        "agents/code-expert.md",
        "contexts/docs/USAGE.md",
        "contexts/docs/subdir/EXTRA.md",
    }


async def test_the_lock_names_every_reference_and_commit(synced: World) -> None:
    lock = json.loads((synced.published / "profile.lock").read_text())
    loop = lock["resources"]["orchestrator"]
    assert lock["generated_at"].endswith("Z")
    assert len(lock["profile_hash"]) == 64
    assert lock["format_version"] == 1
    assert (loop["name"], loop["ref"], loop["commit"]) == (
        "loop-streaming",
        synced.ref("loop-streaming"),
        synced.modules_commit,
    )
    assert loop["resolved_at"].endswith("Z")
    assert loop["content_hash"].startswith("sha256:")
    assert [entry["name"] for entry in lock["resources"]["providers"]] == ["provider-anthropic"]
    expert = lock["resources"]["agents"]["code-expert"]
    assert (expert["ref"].rpartition("@")[2], expert["commit"]) == ("v1.0.0#experts/code.md", synced.agents_commit)
    assert str(synced.root / ".amplifierd") not in json.dumps(lock)


async def test_phase_three_prints_the_resolved_plan_of_the_lifecycle_document(synced: World) -> None:
    plan = await synced.home.plans.generate("foundation/base", form="resolved")

    def place(resource: str) -> str:
        return (synced.published / resource).as_uri()

    assert plan == {
        "session": {
            "orchestrator": "loop-streaming",
            "orchestrator_source": place("orchestrator/loop-streaming"),
            "context": "context-simple",
            "context_source": place("context/context-simple"),
        },
        "orchestrator": {"config": {"max_iterations": 10}},
        "context": {"config": {"max_tokens": 200000}},
        "providers": [
            {
                "module": "provider-anthropic",
                "source": place("providers/provider-anthropic"),
                "config": {"model": "claude-3-5-sonnet-20241022", "api_key": "${ANTHROPIC_API_KEY}"},
            }
        ],
        "tools": [{"module": "tool-web-search", "source": place("tools/tool-web-search"), "config": {}}],
        "hooks": [{"module": "hook-logging", "source": place("hooks/hook-logging"), "config": {"level": "INFO"}}],
        "agents": {
            "code-expert": {
                "content": "You are an expert software engineer...",
                "metadata": {"source": f"git+{synced.agents.path.as_uri()}@v1.0.0#experts/code.md"},
            }
        },
    }
    assert list(plan) == ["session", "orchestrator", "context", "providers", "tools", "hooks", "agents"]


async def test_the_example_transformation_of_the_mount_plan_document(world: World) -> None:
    world.profiles.commit(
        {
            "base/profile.md": f"""---
profile: {{name: base, version: 1.0.0, schema_version: 2}}
session:
  orchestrator:
    module: loop-streaming
    source: {world.ref("loop-streaming")}
    config:
      extended_thinking: true

providers:
- module: provider-anthropic
  source: {world.ref("provider-anthropic")}

agents:
  code-expert: git+{world.agents.path.as_uri()}@v1.0.0#experts/code.md
---
"""
        },
        tag="v2.0.0",
    )
    world.register(f"git+{world.profiles.path.as_uri()}@v2.0.0")
    await world.home.collections.sync()

    assert await world.home.plans.generate("foundation/base") == {
        "session": {
            "orchestrator": {
                "module": "loop-streaming",
                "source": "foundation/base",
                "config": {"extended_thinking": True},
            },
            "context": {"module": "context-simple", "source": "foundation/base", "config": {}},
        },
        "providers": [{"module": "provider-anthropic", "source": "foundation/base", "config": {}}],
        "tools": [],
        "hooks": [],
        "agents": {
            "code-expert": {
                "content": "You are an expert software engineer...",
                "metadata": {"source": "foundation:agents/code-expert.md"},
            }
        },
    }


async def test_both_forms_mount_the_same_modules_and_there_and_back_is_the_identity(world: World) -> None:
    await world.home.collections.sync()
    portable = await world.home.plans.generate("foundation/base")
    resolved = await world.home.plans.generate("foundation/base", form="resolved")

    assert world.home.plans.convert(portable, "resolved") == resolved
    assert world.home.plans.convert(resolved, "portable") == portable
    assert world.home.plans.convert(json.loads(json.dumps(resolved)), "portable") == portable
    assert [await run(world.home, plan) for plan in (portable, resolved)] == [
        "1 provider, 1 tools, {'max_iterations': 10}"
    ] * 2
    for plan in (portable, resolved):
        report = world.home.plans.validate(plan)
        assert (report.errors, report.warnings) == ((), ())


async def run(home: amplifierd.Home, plan: dict[str, Any]) -> str:
    """Run a turn as the documents do: the plan, the resolver, initialize, execute."""
    code = """
import asyncio, json, sys
from amplifier_core import AmplifierSession
from amplifierd.profiles.builds.module_resolver import DaemonModuleSourceResolver

async def main():
    session = AmplifierSession(config=json.load(sys.stdin))
    await session.coordinator.mount("module-source-resolver", DaemonModuleSourceResolver(sys.argv[1]))
    await session.initialize()
    print(await session.execute("Hello!"))
    await session.cleanup()

asyncio.run(main())
"""
    command = [sys.executable, "-c", code, home.paths.share]
    done = await asyncio.to_thread(warm_python.run, command, input=json.dumps(plan), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return str(done.stdout).strip()


async def test_a_moved_home_keeps_its_portable_plans(world: World) -> None:
    await world.home.collections.sync()
    plan = await world.home.plans.generate("foundation/base")
    moved = world.root / "elsewhere with space"
    shutil.move(world.home.paths.home, moved)
    shutil.rmtree(world.root / "remote")

    home = amplifierd.open_home(moved, offline=True, shipped_collection=world.root / "nothing shipped")

    assert await home.plans.generate("foundation/base") == plan
    assert await run(home, plan) == "1 provider, 1 tools, {'max_iterations': 10}"


async def test_editing_a_configuration_changes_the_plan_and_fetches_nothing(world: World) -> None:
    world.register(f"git+{world.profiles.path.as_uri()}@main")
    await world.home.collections.sync()
    before = (await world.home.profiles.compile("foundation/base")).lock.data
    shutil.rmtree(world.modules.path)
    world.profiles.commit({"base/profile.md": world.profile(tokens=7)})
    unchanged = await world.home.plans.generate("foundation/base")

    await world.home.collections.sync()
    plan = await world.home.plans.generate("foundation/base")

    assert unchanged["session"]["context"]["config"] == {"max_tokens": 200000}
    assert plan["session"]["context"]["config"] == {"max_tokens": 7}
    after = (await world.home.profiles.compile("foundation/base")).lock.data
    assert after["profile_hash"] != before["profile_hash"]
    assert after["resources"]["tools"] == before["resources"]["tools"]


@pytest.mark.parametrize(
    ("key", "profile", "value"),
    [
        ("session.orchestrator.config.max_iterations", "foundation/base", 10),
        ("orchestrator.config.max_iterations", "foundation/base", 10),
        ("providers[provider-anthropic].config.model", "foundation/base", "claude-3-5-sonnet-20241022"),
        ("tools[tool-web-search].source", "foundation/base", "foundation/base"),
    ],
)
async def test_every_value_of_a_plan_is_explained(synced: World, key: str, profile: str, value: Any) -> None:
    explained = await synced.home.plans.explain("foundation/base", key)

    assert explained["value"] == value
    assert explained["origin"]["profile"] == profile
    assert Path(explained["origin"]["file"]).name == "profile.md"
    assert explained["origin"]["line"] > 1


async def test_a_diff_knows_versions_from_the_locks(synced: World) -> None:
    before = await synced.home.plans.generate("foundation/base")
    after = json.loads(json.dumps(before))
    after["tools"] = []
    after["session"]["context"]["config"]["max_tokens"] = 1

    diff = synced.home.plans.diff(before, after)

    assert str(diff) == "- tools: tool-web-search\n~ context: context-simple\n    config.max_tokens 200000 → 1"


async def test_a_diff_shows_what_moved_between_two_builds(world: World) -> None:
    ref = world.ref("tool-web-search")
    world.profiles.commit({"base/profile.md": world.profile().replace(ref, ref.replace("@v1.0.0", "@main"))}, tag="v2")
    world.register(f"git+{world.profiles.path.as_uri()}@v2")
    await world.home.collections.sync()
    first, before = (
        await world.home.profiles.compile("foundation/base"),
        await world.home.plans.generate("foundation/base"),
    )
    moved = world.modules.commit({"amplifier_module_tool_web_search/__init__.py": TOOL + "\n# newer\n"})

    await world.home.collections.sync()
    second, after = (
        await world.home.profiles.compile("foundation/base"),
        await world.home.plans.generate("foundation/base"),
    )

    [change] = world.home.plans.diff(before, after, builds=(first, second)).changed
    assert (change.module, change.version) == ("tool-web-search", (world.modules_commit, moved))


@pytest.mark.parametrize("profile", ["base", "../x/y", "a/b/c"])
async def test_a_malformed_profile_id_is_refused(synced: World, profile: str) -> None:
    with pytest.raises(ValueError, match="Invalid profile_id format"):
        await synced.home.plans.generate(profile)


async def test_an_unknown_profile_says_where_it_would_be(synced: World) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"Profile cache directory not found: .*nothing\. Profile foundation/nothing"
    ):
        await synced.home.plans.generate("foundation/nothing")


async def test_a_plan_without_orchestrator_or_context_is_refused_by_the_kernel() -> None:
    for plan in ({}, {"session": {"context": "c"}}, {"session": {"orchestrator": "o"}}):
        with pytest.raises(ValueError, match="Configuration"):
            AmplifierSession(config=plan)
