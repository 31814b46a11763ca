"""Without the SDK the module can be imported and mounted, and says what is missing."""

import json
import subprocess
import sys
from pathlib import Path

from raw_mcp_server import entry

ROOT = Path(__file__).parents[3]

PROGRAM = """
import asyncio, json, sys
sys.path[:0] = json.loads(sys.argv[1])

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("mcp", "mcp_types", "anyio", "httpx2"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from amplifier_core.testing import MockCoordinator
from amplifier_module_tool_mcp import mount

async def main():
    coordinator = MockCoordinator()
    cleanup = await mount(coordinator, {"servers": json.loads(sys.argv[2])})
    await coordinator.hooks.emit("prompt:submit", {"prompt": "go"})
    print(json.dumps([server.status() for server in coordinator.get_capability("mcp.servers")]))
    await cleanup()

asyncio.run(main())
"""


def test_without_the_package_import_and_mount_work_and_the_message_names_the_extra() -> None:
    paths = json.dumps([str(ROOT / "modules/tool-mcp"), str(ROOT / "src")])
    servers = json.dumps({"a": entry(), "b": {"url": "http://127.0.0.1:9/mcp"}})

    run = subprocess.run([sys.executable, "-c", PROGRAM, paths, servers], capture_output=True, text=True, check=True)

    statuses = json.loads(run.stdout)
    assert [status["state"] for status in statuses] == ["failed", "failed"]
    assert {status["last_error"] for status in statuses} == {"tool-mcp needs the package mcp: pip install mcp"}
