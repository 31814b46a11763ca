"""Where a session's log is."""

from pathlib import Path
from typing import Any

import pytest


def logs_below(folder: Path) -> list[Path]:
    return list(folder.rglob("*.jsonl"))


async def test_without_configuration_logs_are_kept_by_project_and_session(
    logs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    logs.coordinator.register_capability("session.working_dir", "/srv/my:project")
    await logs.mount(session_log_template=None)

    await logs.emit("plan:start")

    (found,) = logs_below(tmp_path)
    assert found.relative_to(tmp_path).as_posix() == (
        ".amplifier/projects/-srv-myproject/sessions/test-session/events.jsonl"
    )


async def test_without_a_declared_working_directory_the_project_is_that_of_the_process(
    logs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await logs.mount(session_log_template=f"{tmp_path}/{{project}}.jsonl")
    slugs = []

    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        slugs.append(str(Path.cwd()).replace("/", "-"))
        await logs.emit("plan:start")

    assert {path.stem for path in logs_below(tmp_path)} == set(slugs)


async def test_an_output_dir_holds_one_folder_per_session_and_is_relative_to_the_working_directory(
    logs: Any, tmp_path: Path
) -> None:
    logs.coordinator.register_capability("session.working_dir", str(tmp_path))
    await logs.mount(session_log_template=None, output_dir="logs")

    await logs.emit("plan:start", session_id="s1")

    assert (tmp_path / "logs/s1/events.jsonl").is_file()


async def test_a_template_outranks_an_output_dir(logs: Any, tmp_path: Path) -> None:
    await logs.mount(output_dir=str(tmp_path / "unused"))

    await logs.emit("plan:start")

    assert logs.events() == ["plan:start"]
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(
    "session_id",
    ["../../x", "..", ".", "/etc/x", "a/../../b", "..\\..\\x", "a\0b", "{project}", "~", "\ud800"],
    ids=ascii,
)
async def test_a_session_id_never_leads_out_of_the_sessions_directory(
    logs: Any, tmp_path: Path, session_id: str
) -> None:
    await logs.mount()

    result = await logs.emit("plan:start", session_id=session_id)

    found = logs_below(tmp_path)
    assert result.action == "continue"
    assert [path.parent.parent for path in found] == [logs.folder]


async def test_a_log_is_for_its_owner_alone(logs: Any) -> None:
    await logs.mount()

    await logs.emit("plan:start")

    assert logs.path().stat().st_mode & 0o777 == 0o600
