"""What is said about a session: changed while it is open, refused where it cannot be stored."""

from pathlib import Path

import pytest
from agents_at_work import Agent, call

from amplifierd.exceptions import SessionStateError
from amplifierd.home import Home

READ = call("read_file", file_path="notes.md")


async def test_an_open_session_goes_on_in_another_directory(home: Home, work: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.md").write_text("- buy bread\n")
    agent = Agent([READ, "{{last_tool_result}}", READ, "{{last_tool_result}}"])
    async with home.sessions.open(plan=agent.sections(), working_dir=work) as session:
        first = await session.execute("Read")
        await home.sessions.update(session.session_id, working_dir=other, name="Elsewhere")
        second = await session.execute("Read again")
        (other / "notes.md").write_text("")

    assert "milk" in first.response
    assert "bread" in second.response
    assert (session.record.working_dir, session.record.name) == (str(other), "Elsewhere")
    assert len(home.sessions.messages(session.session_id)) == 8


@pytest.mark.parametrize("change", [{"name": "n" * 201}, {"working_dir": "nowhere"}, {"tags": "one"}])
async def test_a_value_that_cannot_be_stored_is_refused(home: Home, work: Path, change: dict[str, str]) -> None:
    created = await home.sessions.create(plan=Agent().sections(), working_dir=work)

    with pytest.raises(SessionStateError):
        await home.sessions.update(created.session_id, **change)

    assert home.sessions.get(created.session_id) == created


async def test_a_name_that_is_too_long_creates_nothing(home: Home, work: Path) -> None:
    with pytest.raises(SessionStateError, match="name"):
        await home.sessions.create(plan=Agent().sections(), working_dir=work, name="n" * 201)

    assert home.sessions.list().total == 0


async def test_the_copy_of_a_session_with_a_long_name_can_be_read(home: Home, work: Path) -> None:
    created = await home.sessions.create(plan=Agent().sections(), working_dir=work, name="n" * 200)

    copy = await home.sessions.clone(created.session_id)

    assert home.sessions.get(copy.session_id).name == "n" * 190 + " (copy)"
