"""Published bundles run as they are: from the command, over HTTP and from the page.

What they leave to the application comes from the profile of new sessions, whose model follows a script of this home's
overlay: it greets Ada with the bundle's own tool.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import warm_python
from git_repository import use_plain_git
from playwright.sync_api import Page, expect

from .page_daemon import PageDaemon, page_daemon
from .published_bundles import SHAPES, make_repositories
from .visits import visit

OVERLAY = """\
---
providers:
- module: provider-mock
  config:
    mode: scripted
    tool_trigger: null
    script:
    - {tool_calls: [{name: greet, arguments: {who: Ada}}]}
    - {text: "It said: {{last_tool_result}}"}
---
"""


@dataclass(frozen=True)
class Published:
    """The sources of the bundles, and the daemon of a home where each is registered as `the-<shape>`."""

    sources: dict[str, str]
    daemon: PageDaemon
    home: Path

    def amplifier(self, *arguments: str) -> Any:
        """Run the command in that home, without its daemon."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AMPLIFIER", "PYTEST_"))}
        environment = {**kept, "AMPLIFIERD_HOME": str(self.home), "NO_COLOR": "1", "COLUMNS": "200"}
        command = [sys.executable, "-m", "amplifier_cli", *arguments]
        options: Any = {"cwd": self.daemon.directory, "env": environment, "keeper": warm_python.shared_keeper()}
        return warm_python.run(command, capture_output=True, text=True, timeout=60, input="", **options)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    directory = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        use_plain_git(patch)
        overlay = directory / "home/config/overlays/foundation/offline.md"
        overlay.parent.mkdir(parents=True)
        overlay.write_text(OVERLAY)
        sources = make_repositories(directory / "repositories")
        with page_daemon(directory) as daemon:
            for name, uri in sources.items():
                daemon.api.post("/bundles", json={"uri": uri, "name": f"the-{name}"}).raise_for_status()
            yield Published(sources, daemon, directory / "home")


@pytest.fixture(scope="module")
def daemon(published: Published) -> PageDaemon:
    return published.daemon


@pytest.mark.parametrize("name", SHAPES)
def test_the_command_runs_it(published: Published, name: str) -> None:
    shape = SHAPES[name]

    ran = published.amplifier("run", "--no-daemon", "-o", "json", "--bundle", published.sources[name], "Greet Ada.")

    assert ran.returncode == 0, ran.stderr
    assert f"It said: {shape.answer.format(name=name)}" in json.loads(ran.stdout)["response"]
    assert ("runs on top of the profile foundation/offline" in ran.stderr) is shape.is_behaviour


@pytest.mark.parametrize("name", SHAPES)
def test_the_daemon_runs_it(published: Published, name: str) -> None:
    api, shape = published.daemon.api, SHAPES[name]
    body = {"bundle_name": f"the-{name}", "working_dir": str(published.daemon.directory)}
    session = api.post("/sessions", json=body).raise_for_status().json()

    result = published.daemon.run(session["session_id"], "Greet Ada.")

    assert result["response"] == f"It said: {shape.answer.format(name=name)}"
    assert session["base_profile"] == "foundation/offline"
    plan = api.get(f"/sessions/{session['session_id']}/mount-plan").raise_for_status().json()
    guards = {entry["module"]: entry.get("required") for entry in plan["hooks"]}
    assert guards == {"hooks-redaction": True, "hooks-approval": True}
    assert {*shape.agents} <= {*plan.get("agents", {})}
    explained = api.get(f"/sessions/{session['session_id']}/explain").raise_for_status().json()
    origins = {value["key"]: value["origin"] for value in explained["values"]}
    assert origins["providers[provider-mock].config.script"]["file"].endswith("config/overlays/foundation/offline.md")
    assert origins["tools[tool-greet].module"]["line"] is not None
    last = api.get(f"/sessions/{session['session_id']}/requests").raise_for_status().json()["requests"][-1]
    request = api.get(f"/sessions/{session['session_id']}/requests/{last['request_id']}").raise_for_status().text
    assert [line for line in shape.told.splitlines() if line not in request] == []


@pytest.mark.parametrize("name", SHAPES)
def test_the_page_runs_it(published: Published, page: Page, name: str) -> None:
    visit(page, "/app/new")

    page.get_by_role("radio", name=f"the-{name}").check()
    page.get_by_label("First prompt").fill("Greet Ada.")
    page.get_by_role("button", name="Start session").click()

    answer = SHAPES[name].answer.format(name=name)
    expect(page.get_by_role("log")).to_contain_text(f"It said: {answer}")


def test_the_picture_of_a_plan_says_what_came_from_where(published: Published, page: Page) -> None:
    body = {"bundle_name": "the-behaviour", "working_dir": str(published.daemon.directory)}
    session_id = published.daemon.api.post("/sessions", json=body).raise_for_status().json()["session_id"]

    visit(page, f"/app/sessions/{session_id}/plan")

    expect(page.get_by_text("behaving has neither a session nor an instruction: it runs on top of")).to_be_visible()
    page.locator("[data-module=tool-greet]").press("Enter")
    expect(page.get_by_role("region", name="Details")).to_contain_text("behaving, bundle.md:")
    page.locator("[data-module=provider-mock]").press("Enter")
    expect(page.get_by_role("region", name="Details")).to_contain_text("offline.md:")
