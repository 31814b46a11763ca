"""Applications on our kernel and foundation alone, installed beside them as their authors would: one turn each.

The package index has none of the ecosystem's own, so these stand for them: a command, a terminal, a daemon and an
embedded agent use the names that those use, and a distribution requires all four. The modules are those of the contract
pages, which need the kernel only.
"""

import json
import re
import venv
from pathlib import Path
from typing import Any

import pytest
from installed_environments import Environment, Index, built
from package_index import write_wheel
from shared_packages import link, needed_by

from amplifier_core._version import ECOSYSTEM_VERSION

ROOT = Path(__file__).parents[2]
PROMPT = 'units {"value": 10, "unit": "km", "to": "mi"}'
ANSWER = '{"value": 6.21, "unit": "mi"}'
_FILE = re.compile(r"^```\S+ file=(\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BUNDLE = """\
---
bundle: {name: team, version: 1.0.0}
session:
  orchestrator: {module: loop-plain, source: ./loop-plain}
  context: {module: context-window, source: ./context-window}
tools: [{module: tool-units, source: ./tool-units}]
agents: {include: [scout]}
---
You convert.
"""

COMMAND = """
import asyncio, json, sys
from importlib.metadata import version
from pathlib import Path
from amplifier_foundation import Bundle, BundleRegistry, generate_sub_session_id
from amplifier_foundation.configurator._inspector import walk_include_chains
from amplifier_foundation.modules.install_state import InstallStateManager
from amplifier_foundation.subprocess_runner import run_session_in_subprocess

async def main(team, prompt):
    home = Path.cwd() / "home"
    InstallStateManager(home / "cache").invalidate()
    registry = BundleRegistry(home=home)
    registry.register({"team": team})
    settings = Bundle("settings", providers=[{"module": "provider-parrot", "source": team + "/provider-parrot"}])
    prepared = await (await registry.load("team")).compose(settings).prepare(cache_dir=home / "cache")
    plan = prepared.mount_plan
    async with prepared.create_session(session_cwd=Path.cwd()) as session:
        async def spawn(agent_name, instruction, parent_session, agent_configs, **more):
            modules = ("loop-plain", "context-window", "provider-parrot", "tool-units")
            output = await run_session_in_subprocess(
                config={**plan, "agents": {}},
                prompt=instruction,
                parent_id=parent_session.session_id,
                project_path=str(Path.cwd()),
                session_id=generate_sub_session_id(agent_name, parent_session.session_id),
                module_paths={each: prepared.resolver.get_module_source(each) for each in modules},
                bundle_package_paths=[], sys_paths=[], mention_mappings={"team": team},
            )
            return {"output": output}
        session.coordinator.register_capability("session.spawn", spawn)
        answer = await session.execute(prompt)
        agents = session.config["agents"]
        child = await session.coordinator.get_capability("session.spawn")("scout", prompt, session, agents)
    chains = len(walk_include_chains("team", dict(registry._registry)))
    told = {"version": version("amplifier-core"), "agent": agents["scout"]["description"], "chains": chains}
    print(json.dumps({"answer": answer, "child": child["output"], **told}))

asyncio.run(main(*sys.argv[1:]))
"""

TERMINAL = """
import asyncio, json, sys
from pathlib import Path
from amplifier_core import HookResult
from amplifier_foundation import Bundle, load_bundle

class Display:
    def show_message(self, message, level="info", source="hook"): ...

class Approval:
    async def request_approval(self, prompt, options, timeout, default): return "Allow once"

async def main(team, prompt):
    provider = Bundle("provider", providers=[{"module": "provider-parrot", "source": team + "/provider-parrot"}])
    prepared = await (await load_bundle(team)).compose(provider).prepare(cache_dir=Path("home/cache"))
    exports = getattr(prepared, "module_exports", None)
    seen = []
    async def follow(event, data):
        seen.append([event, data.get("tool_name")])
        return HookResult(action="continue")
    session = await prepared.create_session(approval_system=Approval(), display_system=Display())
    for event in ("prompt:submit", "tool:pre", "tool:post"):
        session.coordinator.hooks.register(event, follow, priority=1000, name="tui-" + event)
    answer = await session.execute(prompt)
    await session.cleanup()
    print(json.dumps({"answer": answer, "exports": exports, "seen": seen}))

asyncio.run(main(*sys.argv[1:]))
"""

DAEMON = """
import asyncio, http.server, json, sys, threading, urllib.request
from importlib.metadata import entry_points
from pathlib import Path
from amplifier_foundation import Bundle, BundleRegistry

try:
    from amplifier_foundation import create_child_session
except ImportError:
    create_child_session = None

class Sessions:
    def __init__(self, team):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.session = self.run(self.open(team))

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    async def open(self, team):
        registry = BundleRegistry(home=Path.cwd() / "home")
        registry.register({"team": team})
        provider = Bundle("provider", providers=[{"module": "provider-parrot", "source": team + "/provider-parrot"}])
        self.prepared = await (await registry.load("team")).compose(provider).prepare(cache_dir=Path("home/cache"))
        return await self.prepared.create_session(session_id="one", session_cwd=Path.cwd())

team, prompt = sys.argv[1:]
sessions = Sessions(team)

class Pages(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        prompt = self.rfile.read(int(self.headers["Content-Length"])).decode()
        answer = json.dumps({"answer": sessions.run(sessions.session.execute(prompt))}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    def log_message(self, *given): ...

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
threading.Thread(target=server.serve_forever, daemon=True).start()
asked = urllib.request.Request(f"http://127.0.0.1:{server.server_port}/", data=prompt.encode())
answer = json.load(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=60))
messages = sessions.run(sessions.session.coordinator.get("context").get_messages())
sessions.run(sessions.session.cleanup())
server.shutdown()
plugins = [each.name for each in entry_points(group="amplifierd.plugins")]
roles = [each["role"] for each in messages]
print(json.dumps({**answer, "child": create_child_session, "plugins": plugins, "roles": roles}))
"""

AGENT = """
import asyncio, json, sys
import amplifier_core
from amplifier_core import AmplifierSession, ModuleLoader

class Loader(ModuleLoader):
    loaded = []
    async def load(self, module_id, config=None, source_hint=None, coordinator=None, **more):
        self.loaded.append(module_id)
        return await super().load(module_id, config, source_hint, coordinator, **more)

async def main(team, prompt):
    entry = lambda name: {"module": name, "source": f"{team}/{name}"}
    plan = {
        "session": {"orchestrator": entry("loop-plain"), "context": entry("context-window")},
        "providers": [entry("provider-parrot")],
        "tools": [entry("tool-units")],
    }
    session = AmplifierSession(plan, loader=Loader())
    await session.initialize()
    answer = await session.execute(prompt)
    await session.cleanup()
    told = {"rust": getattr(amplifier_core, "rust_available", False), "loaded": Loader.loaded}
    print(json.dumps({"answer": answer, **told}))

asyncio.run(main(*sys.argv[1:]))
"""

APPLICATIONS = {"command": COMMAND, "terminal": TERMINAL, "daemon": DAEMON, "agent": AGENT}
TELLS: dict[str, dict[str, Any]] = {
    "command": {"child": ANSWER, "version": ECOSYSTEM_VERSION, "agent": "Looks around", "chains": 1},
    "terminal": {
        "exports": {"tool-units": ["units"]},
        "seen": [["prompt:submit", None], ["tool:pre", "units"], ["tool:post", "units"]],
    },
    "daemon": {"child": None, "plugins": [], "roles": ["system", "user", "assistant", "tool", "assistant"]},
    "agent": {"rust": False, "loaded": ["loop-plain", "context-window", "provider-parrot", "tool-units"]},
}


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with the modules of the contract pages."""
    team = tmp_path_factory.mktemp("team")
    files = {
        "bundle.md": BUNDLE,
        "agents/scout.md": "---\nmeta: {name: scout, description: Looks around}\n---\nLook.\n",
    }
    for page in sorted((ROOT / "docs/contracts").glob("*.md")):
        files |= dict(_FILE.findall(page.read_text()))
    for name, text in files.items():
        (team / name).parent.mkdir(parents=True, exist_ok=True)
        (team / name).write_text(text)
    return team


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, checkout: Path, index: Index) -> Environment:
    """An environment with our kernel and foundation, then with the distribution that requires all applications."""
    folder, links = tmp_path_factory.mktemp("applications"), tmp_path_factory.mktemp("links")
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    for needed in needed_by("amplifier-foundation"):
        if needed.metadata["Name"] != "amplifier-core":
            link(needed, site)
    (folder / "home").mkdir()
    environment = Environment(folder, index, "uv")
    environment.install(
        *(str(built(checkout / "packages" / f"amplifier-{part}", "wheel")) for part in ("core", "foundation"))
    )
    for name, code in APPLICATIONS.items():
        write_wheel(links, f"eco_{name}", "1.0", ["amplifier-core>=2", "amplifier-foundation"], code)
    write_wheel(links, "eco_distribution", "1.0", [f"eco-{name}" for name in APPLICATIONS])
    index.taken.clear()
    environment.install("--find-links", str(links), "eco-distribution")
    return environment


def test_the_distribution_brings_all_of_them_and_no_other_kernel(installed: Environment, index: Index) -> None:
    assert index.foreign == set()
    assert installed.listed() == dict.fromkeys(("amplifier-core", "amplifier-foundation"), ECOSYSTEM_VERSION)
    installed.ask("check")
    assert installed.run(installed.python, "-c", "import amplifier_cli").returncode != 0


@pytest.mark.parametrize("name", APPLICATIONS)
def test_each_runs_a_turn_with_a_tool(installed: Environment, team: Path, name: str) -> None:
    run = installed.run(installed.python, "-W", "error", "-m", f"eco_{name}", str(team), PROMPT)

    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {"answer": ANSWER, **TELLS[name]}
