"""The skills of a session over HTTP: what it can load, from where, and what is wrong."""

from pathlib import Path

import httpx2
from real_server import plan
from session_requests import create


def test_skills_are_listed_with_where_they_come_from_and_what_is_wrong(admin: httpx2.Client, tmp_path: Path) -> None:
    library = tmp_path / "library"
    for folder, text in {
        "notes": "name: notes\ndescription: Drafts notes.\ncontext: fork\nshortcut: rn",
        "misnamed": "name: other\ndescription: Has another name.",
        "nothing": "name: nothing",
    }.items():
        (library / folder).mkdir(parents=True)
        (library / folder / "SKILL.md").write_text(f"---\n{text}\n---\nDo it.\n")
    work = tmp_path / "work"
    work.mkdir()
    mounted = plan("Hi.")
    mounted["tools"] = [{"module": "tool-skills", "config": {"skills": [str(library)]}}]
    session_id = create(admin, work, mount_plan=mounted)

    found = admin.get(f"/sessions/{session_id}/skills").json()

    skills = {skill["name"]: skill for skill in found["skills"]}
    assert skills["notes"] == {
        "name": "notes",
        "description": "Drafts notes.",
        "source": str(library),
        "is_fork": True,
        "shortcut": "rn",
        "trusted": True,
        "diagnostics": [],
    }
    (misnamed,) = skills["other"]["diagnostics"]
    assert (misnamed["field"], misnamed["rule"], misnamed["severity"]) == ("name", "directory", "warning")
    assert "nothing" not in skills
    wrong = {one["path"]: one["rule"] for one in found["diagnostics"]}
    assert wrong[str(library / "nothing/SKILL.md")] == "required"
    assert wrong[str(library / "misnamed/SKILL.md")] == "directory"


def test_a_session_without_skills_says_so(admin: httpx2.Client, tmp_path: Path) -> None:
    session_id = create(admin, tmp_path, mount_plan=plan("Hi."))

    assert admin.get(f"/sessions/{session_id}/skills").json() == {"skills": [], "diagnostics": []}
