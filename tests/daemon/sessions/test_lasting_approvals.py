"""Approvals that outlive a session: a file that a person can read, and that approves nothing when it is damaged."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from agents_at_work import Agent, call

from amplifier_core.interfaces import ApprovalRequest
from amplifier_kit.concerns import PendingCall, Scope, asking_about
from amplifierd.exceptions import ApprovalDecisionError, ApprovalNotFoundError, SettingsError
from amplifierd.home import Home
from amplifierd.paths import Paths
from amplifierd.sessions.questions.approval import Approval, ApprovalDecision, Callback
from amplifierd.sessions.questions.lasting_approvals import LastingApprovals

from .test_approvals import Asked

PYTEST, INSTALL = Scope("bash", "pytest …"), Scope("bash", "npm install", is_exact=True)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.from_environment(tmp_path / "home", {})


def project(paths: Paths, name: str = "site") -> LastingApprovals:
    directory = paths.home.parent / name
    directory.mkdir(exist_ok=True)
    return LastingApprovals(paths, str(directory))


def test_here_is_this_project_and_everywhere_is_all(paths: Paths) -> None:
    project(paths).add([PYTEST], "project")
    project(paths).add([INSTALL], "everywhere")

    assert project(paths).read() == {PYTEST.key: "project", INSTALL.key: "everywhere"}
    assert project(paths, "other").read() == {INSTALL.key: "everywhere"}


def test_the_file_is_plain_and_keeps_what_a_person_wrote(paths: Paths) -> None:
    project(paths).add([PYTEST], "everywhere")
    text = paths.approvals_file.read_text()
    paths.approvals_file.write_text(text.replace("covers: pytest …", "covers: pytest …  # every day"))
    project(paths).add([INSTALL, INSTALL], "project")
    project(paths).add([INSTALL], "project")

    text = paths.approvals_file.read_text()
    assert "# every day" in text
    assert "Remove an entry" in text
    assert yaml.safe_load(text) == {
        "everywhere": [{"tool": "bash", "covers": "pytest …"}],
        "projects": {str(paths.home.parent / "site"): [{"tool": "bash", "exactly": "npm install"}]},
    }


@pytest.mark.parametrize(
    "text",
    [
        "- a list",
        "everywhere: all",
        "everywhere: [pytest]",
        "everywhere: [{tool: bash}]",
        "everywhere: [{tool: bash, covers: a, exactly: a}]",
        "projects: [a]",
        "projects: {/elsewhere: [{covers: a}]}",
        "everywhere: []\nunknown: 1",
        "everywhere: [",
    ],
)
async def test_a_damaged_file_is_an_error_that_names_it_and_approves_nothing(
    paths: Paths, text: str, tmp_path: Path
) -> None:
    paths.config.mkdir(parents=True)
    paths.approvals_file.write_text(text)

    with pytest.raises(SettingsError, match=r"approvals\.yaml is damaged"):
        project(paths).read()
    with pytest.raises(SettingsError, match=r"approvals\.yaml is damaged"):
        project(paths).add([PYTEST], "everywhere")
    assert paths.approvals_file.read_text() == text
    asked = Asked(lasting=project(paths))
    calling = asyncio.create_task((await asked.guarded(tmp_path))("bash", {"command": "pytest -q"}))
    await asked.queue.resolve(await asked.question(), "deny")
    assert (await calling).action == "deny"


@pytest.mark.parametrize(("reach", "asked_elsewhere"), [("project", 1), ("everywhere", 0), ("session", 1), (True, 1)])
async def test_a_later_session_is_not_asked_what_was_answered_for_good(
    paths: Paths, tmp_path: Path, reach: Any, asked_elsewhere: int
) -> None:
    first = Asked(lasting=project(paths))
    calling = asyncio.create_task((await first.guarded(tmp_path))("bash", {"command": "pytest -q"}))
    await first.queue.resolve(await first.question(), "allow", remember=reach)
    assert (await calling).action == "continue"

    elsewhere = Asked(lasting=project(paths, "other"))
    calling = asyncio.create_task((await elsewhere.guarded(tmp_path))("bash", {"command": "pytest tests/x.py"}))
    if asked_elsewhere:
        await elsewhere.queue.resolve(await elsewhere.question(), "deny")
    assert (await calling).action == ("deny" if asked_elsewhere else "continue")
    assert paths.approvals_file.exists() == (reach in ("project", "everywhere"))


async def test_a_no_does_not_outlive_its_session(paths: Paths, tmp_path: Path) -> None:
    asked = Asked(lasting=project(paths))
    calling = asyncio.create_task((await asked.guarded(tmp_path))("bash", {"command": "pytest"}))
    request_id = await asked.question()

    with pytest.raises(ApprovalDecisionError, match="only a yes"):
        await asked.queue.resolve(request_id, "deny", remember="everywhere")
    await asked.queue.resolve(request_id, "deny")
    assert (await calling).action == "deny"


@pytest.mark.parametrize(("reach", "is_asked"), [("session", True), ("project", True), ("everywhere", False)])
async def test_a_session_that_could_leak_is_asked_about_a_host_that_is_not_approved_everywhere(
    paths: Paths, reach: Any, is_asked: bool
) -> None:
    asked = Asked(lasting=project(paths))

    def ask(**known: Any) -> Any:
        request = ApprovalRequest(tool_name="web_fetch", action="Execute web_fetch", details={}, risk_level="medium")
        scopes = (Scope("host", "example.org:443"),)
        call = PendingCall("web_fetch", "web_fetch", request.action, "medium", frozenset({"network"}), scopes, **known)
        with asking_about(call):
            return asyncio.create_task(asked.queue.provider().request_approval(request))

    asking = ask()
    await asked.queue.resolve(await asked.question(), "allow", remember=reach)
    assert (await asking).approved
    assert (await ask()).approved

    asking = ask(only_everywhere=True)
    if is_asked:
        await asked.queue.resolve(await asked.question(2), "deny")
    assert (await asking).approved is not is_asked


async def test_what_is_critical_is_asked_whatever_the_file_says(paths: Paths, tmp_path: Path) -> None:
    project(paths).add([Scope("bash", "sudo make", is_exact=True)], "everywhere")
    asked = Asked(lasting=project(paths))
    calling = asyncio.create_task((await asked.guarded(tmp_path))("bash", {"command": "sudo make"}))

    await asked.queue.resolve(await asked.question(), "deny")
    assert (await calling).action == "deny"


async def test_what_is_remembered_is_listed_and_revoked_wherever_it_is_kept(home: Home, work: Path) -> None:
    asked: list[str] = []

    def answer(approval: Approval) -> ApprovalDecision:
        asked.append(approval.action)
        return ApprovalDecision("allow", remember=True)

    steps = [call("write_file", file_path=f"{number}.txt", content="x") for number in range(3)]
    agent = Agent([*(part for step in steps for part in (step, "Done."))], hooks=[{"module": "hooks-approval"}])
    lasting = LastingApprovals(home.paths, str(work))
    async with home.sessions.open(plan=agent.sections(), working_dir=work, approver=Callback(answer)) as session:
        await session.execute("One")
        await session.execute("Two")
        assert len(asked) == 1
        lasting.add([PYTEST], "project")
        lasting.add([INSTALL], "everywhere")

        found = await home.sessions.remembered_approvals(session.session_id)
        assert [(one.reach, one.scope.covers) for one in found] == [
            ("session", "write files in ./"),
            ("project", "pytest …"),
            ("everywhere", "npm install"),
        ]
        for one in found:
            await home.sessions.revoke_approval(session.session_id, one.approval_id)
        await session.execute("Three")

    assert len(asked) == 2
    assert lasting.read() == {}
    with pytest.raises(ApprovalNotFoundError, match="nothing that is remembered has the id"):
        await home.sessions.revoke_approval(session.session_id, found[1].approval_id)
    (again,) = await home.sessions.remembered_approvals(session.session_id)
    await home.sessions.revoke_approval(session.session_id, again.approval_id)
    assert await home.sessions.remembered_approvals(session.session_id) == []


def test_revoking_one_entry_leaves_the_others_and_what_a_person_wrote(paths: Paths) -> None:
    project(paths).add([PYTEST, INSTALL], "project")
    project(paths, "other").add([PYTEST], "project")
    text = paths.approvals_file.read_text()
    paths.approvals_file.write_text(text.replace("exactly: npm install", "exactly: npm install  # once a week", 1))

    (first, _) = project(paths).remembered()
    project(paths).remove(first)

    assert project(paths).read() == {INSTALL.key: "project"}
    assert project(paths, "other").read() == {PYTEST.key: "project"}
    assert "# once a week" in paths.approvals_file.read_text()
