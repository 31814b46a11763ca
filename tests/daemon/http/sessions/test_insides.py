"""What a session is made of and what its turns changed, over HTTP."""

from __future__ import annotations

from pathlib import Path

import httpx2
from real_server import plan
from session_requests import WRITE, code, create, execute


def test_what_is_inside_a_session_is_shown(admin: httpx2.Client, spoken: str) -> None:
    path = f"/sessions/{spoken}"
    assert admin.get(f"{path}/mount-plan").json()["mount_plan"] == admin.get(f"{path}/config").json()["mount_plan"]
    modules = {item["id"]: item["status"] for item in admin.get(f"{path}/modules").json()["items"]}
    assert modules["loop-streaming"] == "loaded"
    for part in ("tools", "hooks", "capabilities", "agents"):
        assert admin.get(f"{path}/{part}").status_code == 200
    requests = admin.get(f"{path}/requests").json()
    assert (requests["total"], requests["requests"][0]["turn"]) == (2, 1)
    one = admin.get(f"{path}/requests/{requests['requests'][1]['request_id']}").json()
    assert any("And then?" in str(part["content"]) for part in one["parts"])
    assert admin.get(f"{path}/requests/none").status_code == 404


def test_what_a_turn_did_is_shown_and_taken_back(admin: httpx2.Client, tmp_path: Path) -> None:
    session_id = create(admin, tmp_path, mount_plan=plan(WRITE, "Written.", tools=True))
    assert execute(admin, session_id).status_code == 200

    changes = admin.get(f"/sessions/{session_id}/changes", params={"turn": 1}).json()
    assert (changes["added"], "+hello" in changes["diff"]) == (["new.md"], True)
    undone = admin.post(f"/sessions/{session_id}/undo", json={"turn": 1}).json()

    assert (undone["done"], (tmp_path / "new.md").exists()) == (True, False)
    assert admin.get(f"/sessions/{session_id}/messages").json()["total"] == 0
    assert code(admin.get(f"/sessions/{session_id}/changes", params={"turn": 7})) == (422, "validation-error")
