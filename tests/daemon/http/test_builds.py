"""Versions of one module side by side over HTTP, and a profile that is compiled again while its sessions go on."""

from __future__ import annotations

from pathlib import Path

import httpx2

MODULE = """
class Tool:
    name = "version"
    description = "Says which code it is."
    input_schema = {"type": "object", "properties": {}}

    def get_schema(self):
        return self.input_schema

    async def execute(self, input):
        return {"version": "VERSION"}


async def mount(coordinator, config=None):
    await coordinator.mount("tools", Tool(), name="version")
"""
PROJECT = '[project]\nname = "amplifier-module-tool-version"\nversion = "1"\ndependencies = []\n'
CALL = {"tool_calls": [{"name": "version", "arguments": {}}]}


def write_module(folder: Path, version: str) -> Path:
    """Write a module whose tool says a version."""
    package = folder / "tool-version/amplifier_module_tool_version"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(MODULE.replace("VERSION", version))
    (package.parent / "pyproject.toml").write_text(PROJECT)
    return package.parent


def add_profile(admin: httpx2.Client, name: str, module: Path) -> str:
    provider = {"script": [CALL, "Done."], "on_exhausted": "rotate", "tool_trigger": None}
    body = {
        "name": name,
        "session": {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}},
        "providers": [{"module": "provider-mock", "config": provider}],
        "tools": [{"module": "tool-version", "source": str(module)}],
    }
    made = admin.post("/profiles", json=body)
    assert made.status_code == 201, made.text
    assert admin.post(f"/profiles/{name}/compile").status_code == 200
    return str(made.json()["id"])


def begin(admin: httpx2.Client, profile: str, work: Path) -> str:
    created = admin.post("/sessions", json={"profile_name": profile, "working_dir": str(work)})
    assert created.status_code == 201, created.text
    return str(created.json()["session_id"])


def said(admin: httpx2.Client, session_id: str) -> list[str]:
    """Run a turn, and return the versions that the tool has said so far."""
    assert admin.post(f"/sessions/{session_id}/execute", json={"prompt": "Which?"}).status_code == 200
    messages = admin.get(f"/sessions/{session_id}/messages", params={"include": "tools"}).json()["messages"]
    told = [str(one["content"]) for one in messages if one["role"] == "tool"]
    return [version for text in told for version in ("first", "second", "other") if version in text]


def test_each_session_runs_the_code_that_it_was_built_with(admin: httpx2.Client, tmp_path: Path) -> None:
    one = add_profile(admin, "one", write_module(tmp_path / "one", "first"))
    two = add_profile(admin, "two", write_module(tmp_path / "two", "other"))
    old, beside = begin(admin, one, tmp_path), begin(admin, two, tmp_path)
    assert (said(admin, old), said(admin, beside)) == (["first"], ["other"])

    write_module(tmp_path / "one", "second")
    assert admin.post("/profiles/one/compile").json()["status"] == "compiled"
    new = begin(admin, one, tmp_path)

    assert (said(admin, new), said(admin, old), said(admin, beside)) == (["second"], ["first"] * 2, ["other"] * 2)
    workers = [worker for worker in admin.get("/workers").json()["workers"] if worker["sessions"]]
    assert len({worker["pid"] for worker in workers}) >= 3
    switched = admin.post(f"/sessions/{old}/change-profile", json={"profile_name": one})
    assert switched.json()["build_id"] == admin.get(f"/sessions/{new}").json()["build_id"]
    assert said(admin, old) == ["first", "first", "second"]
    for session_id in (old, new, beside):
        assert admin.delete(f"/sessions/{session_id}").status_code == 204
