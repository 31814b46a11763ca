"""What is left of a crash: checkpoints, logs, requests, exports and replays where a module fails with secrets."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from hurt_daemon import HurtDaemon, hurt_daemon

ENVIRONMENT = "canary-of-the-environment-5e1f0c2a"
SAID = "sk-ant-api03-c4n4ryth4tth3v3nd0rs4id0123456789abcdefABCDEF"
MODULE = f"""
import logging, os, threading, time

__amplifier_module_type__ = "tool"


class CrashTool:
    name, description = "crash", "Fails."
    input_schema = {{"type": "object", "properties": {{"how": {{"type": "string"}}}}}}

    def __init__(self, password):
        self.password = password

    async def execute(self, input):
        if input["how"] == "raise":
            self.fail()
        try:
            self.fail()
        except RuntimeError:
            logging.getLogger("crash").exception("logged by %s", self.password)
        thread = threading.Thread(target=self.fail)  # its traceback goes to stderr
        thread.start()
        thread.join()
        os.write(2, f"the last words of {{self.password}} and {SAID}\\n".encode())
        time.sleep(0.3)
        os._exit(3)

    def fail(self):
        raise RuntimeError(f"cannot log in with {{self.password}} or {SAID}")


async def mount(coordinator, config=None):
    await coordinator.mount("tools", CrashTool((config or {{}})["password"]), name="crash")
"""


def crashing_session(daemon: HurtDaemon, modules: Path) -> str:
    """Run a turn in which a tool fails, and one in which it ends its worker; return the path of the session."""
    package = modules / "tool-crash/amplifier_module_tool_crash"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(MODULE)
    steps: list[dict[str, Any]] = [
        {"name": "write_file", "arguments": {"file_path": "made.txt", "content": "made\n"}},
        {"name": "crash", "arguments": {"how": "raise"}},
        {"name": "crash", "arguments": {"how": "exit"}},
    ]
    first, second, last = ({"tool_calls": [step]} for step in steps)
    provider = {"script": [first, second, "Failed.", last, "Last."], "tool_trigger": None, "raw": True}
    tools = [
        {"module": "tool-filesystem"},
        {"module": "tool-crash", "source": str(package.parent), "config": {"password": "${CANARY_API_KEY}"}},
    ]
    mount_plan = {
        "session": {"orchestrator": {"module": "loop-streaming"}, "context": {"module": "context-simple"}},
        "providers": [{"module": "provider-mock", "config": provider}],
        "tools": tools,
        "hooks": [{"module": "hooks-logging"}],
        "agents": {},
    }
    admin = daemon.client()
    body = {"mount_plan": mount_plan, "working_dir": str(daemon.folder("work"))}
    agreed = {"agree": [{"module": "tool-crash", "gets": "CANARY_API_KEY"}]}
    assert admin.patch("/settings/agreements", json=agreed).status_code == 200
    created = admin.post("/sessions", json=body)
    assert created.status_code == 201, created.text
    path = f"/sessions/{created.json()['session_id']}"
    answers = [admin.post(f"{path}/execute", json={"prompt": prompt}) for prompt in ("Fail.", "Crash.")]
    assert [answer.status_code for answer in answers] == [200, 499], [answer.text for answer in answers]
    assert not any(secret in answer.text for secret in (ENVIRONMENT, SAID) for answer in answers)
    return path


def is_owners_own(name: str, secret: str) -> bool:
    """Say whether a file has what a tool returned: the conversation has it whole, receipts without known secrets."""
    of_a_session, _, file = name.rpartition("/")
    is_allowed = file == "transcript.jsonl" or (file == "parts.jsonl" and secret == SAID)
    return of_a_session.startswith("state/sessions/") and is_allowed


def test_no_secret_is_in_what_a_crash_leaves(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    modules = tmp_path / "modules"
    settings = {"log_level": "debug", "security": {"module_roots": [str(modules)]}}
    with hurt_daemon(place, variables={"CANARY_API_KEY": ENVIRONMENT}, **settings) as daemon:
        path = crashing_session(daemon, modules)
        admin = daemon.client()
        below = (
            "",
            "/changes?turn=1",
            "/changes?turn=2",
            "/requests",
            "/turns",
            "/events",
            "/messages",
            "/modules",
        )
        answers = {each: admin.get(f"{path}{each}") for each in below}
        answers |= {"logs": admin.get("/logs?lines=1000"), "replay": admin.post(f"{path}/replay", json={})}
        answers["export"] = admin.get(f"{path}/export?mask_messages=true")
        texts = {name: answer.text for name, answer in answers.items() if name != "export"}
        with ZipFile(BytesIO(answers["export"].content)) as export:
            texts |= {f"export: {name}": export.read(name).decode(errors="replace") for name in export.namelist()}
        files = [file for file in daemon.home.rglob("*") if file.is_file()]
        texts |= {str(file.relative_to(daemon.home)): file.read_bytes().decode(errors="replace") for file in files}

    assert {name: answer.status_code for name, answer in answers.items() if answer.status_code != 200} == {}
    assert "made.txt" in texts["/changes?turn=1"]
    found = {(name, secret) for name, text in texts.items() for secret in (ENVIRONMENT, SAID) if secret in text}
    leaked = {(name, secret) for name, secret in found if not is_owners_own(name, secret)}
    assert leaked == set()
    logs = "".join(text for name, text in texts.items() if name.startswith("state/logs"))
    assert [word for word in ("logged by", "cannot log in with", "the last words of") if word not in logs] == []
