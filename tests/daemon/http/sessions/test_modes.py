"""The mode of a session over HTTP: shown, entered and left as a person does."""

from pathlib import Path

import httpx2
from real_server import plan
from session_requests import WRITE, code, create, submit, watch_until


def test_a_mode_is_listed_entered_held_to_and_left(admin: httpx2.Client, tmp_path: Path) -> None:
    folder = tmp_path / ".amplifier/modes"
    folder.mkdir(parents=True)
    front = "  description: Look only\n  tools: {safe: [read_fil, read_file]}\n"
    (folder / "look.md").write_text(f"---\nmode:\n{front}---\nLook.\n")
    session_id = create(admin, tmp_path, mount_plan=plan(WRITE, "Done.", tools=True, hooks=[{"module": "hooks-mode"}]))
    path = f"/sessions/{session_id}/mode"
    listed = admin.get(path).json()
    assert listed["active_mode"] is None
    assert {"plan", "explore", "careful", "look"} == {mode["name"] for mode in listed["modes"]}

    entered = admin.post(path, json={"name": "look"}).json()
    assert (entered["active_mode"], entered["policy"]["unknown_tools"]) == ("look", {"read_fil": "read_file"})
    watch_until(admin, submit(admin, session_id)["events_url"], "execution:done")
    assert not (tmp_path / "new.md").exists()

    assert code(admin.post(path, json={"name": "nowhere"})) == (409, "session-state-conflict")
    assert admin.post(path, json={"name": None}).json()["active_mode"] is None


def test_a_session_without_modes_says_so(admin: httpx2.Client, tmp_path: Path) -> None:
    session_id = create(admin, tmp_path, mount_plan=plan("Hi."))

    assert admin.get(f"/sessions/{session_id}/mode").json() == {"active_mode": None, "modes": [], "policy": None}
    assert admin.post(f"/sessions/{session_id}/mode", json={"name": "plan"}).status_code == 409
