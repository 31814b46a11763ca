"""The file of a conversation, alone and shared with others."""

import hashlib
import json
import logging
import stat
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_context_persistent import PersistentContextManager, mount

from amplifier_core.testing import EventRecorder, MockCoordinator
from amplifier_kit.mounting import project_slug

Message = dict[str, Any]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def contents(messages: list[Message]) -> list[Any]:
    return [message["content"] for message in messages]


class TestFormat:
    async def test_lines_are_readable_and_for_the_owner_only(self, open_context: Any, file: Any) -> None:
        context = await open_context()
        await context.add_message(user("grüße 🙂"))

        assert "grüße 🙂".encode() in file.contents()
        assert file.contents().endswith(b"}\n")
        assert stat.S_IMODE(file.path.stat().st_mode) == 0o600

    async def test_there_is_no_file_before_the_first_message(self, open_context: Any, file: Any) -> None:
        context = await open_context()
        context.close()

        assert not file.path.exists()

    async def test_system_messages_are_kept_too(self, open_context: Any, file: Any) -> None:
        context = await open_context()
        await context.add_message({"role": "system", "content": "You are kind."})

        assert contents(file.lines()) == ["You are kind."]

    async def test_what_json_lacks_is_converted(self, open_context: Any, file: Any) -> None:
        context = await open_context()

        await context.add_message({**user("hi"), "extra": {"bytes": b"abc", "path": Path("x"), "number": float("nan")}})

        assert file.lines()[0]["extra"] == {"bytes": "<bytes:3>", "path": "x", "number": "nan"}

    async def test_lone_surrogates_are_no_reason_to_fail(self, open_context: Any, file: Any) -> None:
        context = await open_context()

        await context.add_message(user("\ud800"))

        assert contents(file.lines()) == ["?"]

    async def test_a_timestamp_at_the_top_is_read(self, open_context: Any, file: Any) -> None:
        file.write(b'{"role": "user", "content": "old", "timestamp": "then"}\n')

        assert (await (await open_context()).get_messages())[0]["metadata"] == {"timestamp": "then"}

    async def test_malformed_lines_are_skipped_by_number_and_kept(
        self, open_context: Any, file: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        good = json.dumps(user("one")).encode()
        file.write(b"\n".join([good, b"{nonsense", b"[1]", b"", b"\xff", good, b""]))
        before = file.contents()

        context = await open_context()

        assert contents(await context.get_messages()) == ["one", "one"]
        assert [f"line {number} is not a message" in caplog.text for number in (1, 2, 3, 4, 5)] == [
            False,
            True,
            True,
            False,
            True,
        ]
        assert file.contents() == before

    async def test_a_last_line_that_only_lacks_its_end_is_a_message(self, open_context: Any, file: Any) -> None:
        file.write(json.dumps(user("one")).encode())

        context = await open_context()
        await context.add_message(user("two"))

        assert contents(file.lines()) == contents(await context.get_messages()) == ["one", "two"]

    async def test_a_file_that_cannot_be_read_is_an_error(self, file: Any) -> None:
        file.path.mkdir(parents=True)

        with pytest.raises(OSError, match="directory"):
            await PersistentContextManager(transcript_path=file.path).initialize()

    async def test_every_message_can_be_forced_to_the_disk(self, open_context: Any, file: Any) -> None:
        context = await open_context(fsync=True)

        await context.add_message(user("one"))

        assert contents(file.lines()) == ["one"]


class TestReplacing:
    async def test_a_fresh_conversation_is_set(self, open_context: Any, file: Any) -> None:
        context = await open_context()
        await context.add_message(user("one"))

        await context.set_messages([user("two"), user("three")])
        await context.add_message(user("four"))

        assert contents(file.lines()) == contents(await context.get_messages()) == ["two", "three", "four"]

    async def test_a_bad_message_leaves_the_file_alone(self, open_context: Any, file: Any) -> None:
        context = await open_context()
        await context.add_message(user("one"))

        with pytest.raises(ValueError, match="role"):
            await context.set_messages([{}])

        assert contents(file.lines()) == ["one"]

    async def test_clearing_empties_the_file(self, open_context: Any, file: Any) -> None:
        context = await open_context()
        await context.add_message(user("one"))

        await context.clear()
        assert file.contents() == b""
        await context.add_message(user("two"))

        assert contents(file.lines()) == ["two"]

    async def test_nothing_but_the_file_is_left_in_the_directory(self, open_context: Any, file: Any) -> None:
        context = await open_context()
        await context.set_messages([user("one")])
        await context.clear()

        assert [path.name for path in file.path.parent.iterdir()] == [file.path.name]


class TestFailures:
    @pytest.fixture(autouse=True)
    def obstruct(self, file: Any) -> None:
        file.obstruct()

    async def test_each_failed_message_is_an_event_and_the_first_is_logged(
        self, file: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        events = EventRecorder()
        context = PersistentContextManager(transcript_path=file.path, hooks=events)

        for text in ("one", "two"):
            await context.add_message(user(text))

        assert [(event, data["pending"]) for event, data in events.events] == [
            ("context:persist_error", 1),
            ("context:persist_error", 2),
        ]
        assert events.events[0][1]["error"]["type"] in ("FileExistsError", "NotADirectoryError")
        assert [record.levelno for record in caplog.records] == [logging.ERROR]
        assert contents(await context.get_messages()) == ["one", "two"]

    async def test_what_is_unsaved_is_written_with_the_next_message(self, file: Any) -> None:
        context = PersistentContextManager(transcript_path=file.path)
        await context.add_message(user("one"))
        file.make_way()

        await context.add_message(user("two"))

        assert contents(file.lines()) == contents(await context.get_messages()) == ["one", "two"]
        context.close()

    async def test_what_is_unsaved_is_written_in_the_end(self, file: Any) -> None:
        context = PersistentContextManager(transcript_path=file.path)
        await context.add_message(user("one"))
        file.make_way()

        context.close()
        context.close()

        assert contents(file.lines()) == ["one"]

    async def test_what_could_not_be_written_in_the_end_is_told(
        self, file: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        context = PersistentContextManager(transcript_path=file.path)
        await context.add_message(user("one"))

        context.close()

        assert "1 messages are lost" in caplog.text

    @pytest.mark.parametrize("renewal", ["set", "clear"])
    async def test_a_history_that_could_not_be_replaced_is_replaced_later(self, file: Any, renewal: str) -> None:
        events = EventRecorder()
        context = PersistentContextManager(transcript_path=file.path, hooks=events)
        if renewal == "set":
            await context.set_messages([user("one")])
        else:
            await context.clear()
        assert [event for event, _ in events.events] == ["context:persist_error"]
        file.make_way()

        await context.add_message(user("two"))

        assert contents(file.lines()) == contents(await context.get_messages())
        context.close()

    async def test_each_episode_is_logged_once(self, file: Any, caplog: pytest.LogCaptureFixture) -> None:
        context = PersistentContextManager(transcript_path=file.path)
        for _ in range(2):
            file.obstruct()
            await context.add_message(user("lost for now"))
            await context.add_message(user("lost for now"))
            file.make_way()
            await context.add_message(user("found"))

        assert sum(record.levelno == logging.ERROR for record in caplog.records) == 2
        assert contents(file.lines()) == contents(await context.get_messages())
        assert len(file.lines()) == 6
        context.close()


class TestSharing:
    async def test_a_second_owner_is_warned_and_both_see_all(
        self, open_context: Any, file: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = await open_context()
        await first.add_message(user("one"))
        second = await open_context()
        await second.add_message(user("two"))
        await first.add_message(user("three"))

        for context in (first, second):
            assert contents(await context.get_messages()) == ["one", "two", "three"]
            assert contents(await context.get_messages_for_request()) == ["one", "two", "three"]
        assert contents(file.lines()) == ["one", "two", "three"]
        assert caplog.text.count("in use elsewhere") == 1

    async def test_an_owner_that_closed_is_none(self, open_context: Any, caplog: pytest.LogCaptureFixture) -> None:
        first = await open_context()
        await first.add_message(user("one"))
        first.close()

        await open_context()

        assert "in use elsewhere" not in caplog.text

    async def test_messages_that_others_append_are_in_the_next_view(self, open_context: Any, file: Any) -> None:
        context = await open_context()
        await context.add_message(user("one"))
        before = await context.get_messages_for_request()

        file.append(user("two"), user("three"))

        after = await context.get_messages_for_request()
        assert contents(after) == ["one", "two", "three"]
        assert after[0] is before[0]

    async def test_a_line_that_another_has_not_finished_waits(self, open_context: Any, file: Any) -> None:
        context = await open_context()
        await context.add_message(user("one"))
        whole = json.dumps(user("two")).encode()

        file.write(file.contents() + whole[:10])
        assert contents(await context.get_messages()) == ["one"]
        file.write(file.contents() + whole[10:] + b"\n")

        assert contents(await context.get_messages()) == ["one", "two"]

    async def test_a_file_that_became_shorter_is_read_again(self, open_context: Any, file: Any) -> None:
        context = await open_context()
        for text in ("one", "two", "three"):
            await context.add_message(user(text))
        before = await context.get_messages_for_request()

        file.write(file.contents().splitlines(keepends=True)[0])

        after = await context.get_messages_for_request()
        assert contents(after) == ["one"]
        assert after[0] is before[0]
        await context.add_message(user("four"))
        assert contents(file.lines()) == ["one", "four"]

    async def test_a_file_that_was_only_touched_changes_nothing(self, open_context: Any, file: Any) -> None:
        context = await open_context()
        await context.add_message(user("one"))
        before = await context.get_messages_for_request()

        file.write(file.contents())

        after = await context.get_messages_for_request()
        assert all(one is other for one, other in zip(before, after, strict=True))

    async def test_a_file_that_is_gone_is_written_anew(
        self, open_context: Any, file: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        context = await open_context()
        await context.add_message(user("one"))
        file.path.unlink()

        assert contents(await context.get_messages()) == ["one"]
        await context.add_message(user("two"))

        assert contents(file.lines()) == ["one", "two"]
        assert "is gone" in caplog.text

    async def test_another_file_in_its_place_is_the_conversation(self, open_context: Any, file: Any) -> None:
        context = await open_context()
        await context.add_message(user("one"))
        file.path.unlink()
        file.append(user("other"), user("history"))

        await context.add_message(user("more"))

        assert contents(file.lines()) == contents(await context.get_messages()) == ["other", "history", "more"]

    async def test_unsaved_messages_stay_at_the_end(self, open_context: Any, file: Any) -> None:
        context = await open_context()
        file.obstruct()
        await context.add_message(user("mine"))
        file.make_way()
        file.append(user("theirs"))

        assert contents(await context.get_messages()) == ["theirs", "mine"]
        await context.add_message(user("mine too"))

        assert contents(file.lines()) == contents(await context.get_messages()) == ["theirs", "mine", "mine too"]


class TestLocation:
    @pytest.fixture(autouse=True)
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        return tmp_path / "home"

    def coordinator(self, working_dir: Path | None = None) -> MockCoordinator:
        coordinator = MockCoordinator()
        if working_dir is not None:
            coordinator.register_capability("session.working_dir", str(working_dir))
        return coordinator

    async def mounted(self, coordinator: MockCoordinator, config: dict[str, Any] | None = None) -> Any:
        coordinator.register_cleanup(await mount(coordinator, config))
        context = coordinator.get("context")
        await context.add_message(user("hi"))
        await coordinator.cleanup()
        return context

    async def test_it_follows_from_the_working_directory_and_the_session(self, home: Path, tmp_path: Path) -> None:
        context = await self.mounted(self.coordinator(tmp_path / "project"))

        folder = home / ".amplifier/projects" / project_slug(tmp_path / "project")
        assert context.transcript_path == folder / "sessions/test-session/context-messages.jsonl"
        assert context.transcript_path.is_file()

    async def test_without_the_capability_the_process_decides(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)

        context = await self.mounted(self.coordinator())

        assert project_slug(tmp_path) in context.transcript_path.parts

    async def test_a_session_under_the_older_name_of_its_project_goes_on_there(
        self, home: Path, tmp_path: Path
    ) -> None:
        project = tmp_path / "project"
        slug = f"project-{hashlib.sha256(str(project).encode()).hexdigest()[:8]}"
        older = home / ".amplifier/projects" / slug / "sessions/test-session/context-messages.jsonl"
        older.parent.mkdir(parents=True)
        older.write_text(json.dumps(user("before")) + "\n")

        context = await self.mounted(self.coordinator(project))

        assert context.transcript_path == older
        assert contents(await context.get_messages()) == ["before", "hi"]

    @pytest.mark.parametrize(
        ("given", "expected"), [("~/talk.jsonl", "home/talk.jsonl"), ("talk.jsonl", "project/talk.jsonl")]
    )
    async def test_a_given_path_may_be_short(self, tmp_path: Path, given: str, expected: str) -> None:
        context = await self.mounted(self.coordinator(tmp_path / "project"), {"transcript_path": given})

        assert context.transcript_path == tmp_path / expected
        assert context.transcript_path.is_file()

    async def test_without_a_path_and_a_session_it_is_in_memory(self, home: Any) -> None:
        coordinator = self.coordinator()
        coordinator.session_id = ""

        context = await self.mounted(coordinator)

        assert context.transcript_path is None
        assert contents(await context.get_messages()) == ["hi"]
        assert not home.exists()


class TestMemoryFiles:
    async def test_each_is_a_system_message_in_order_and_in_the_file(
        self, open_context: Any, file: Any, tmp_path: Path
    ) -> None:
        for name in ("b.md", "a.md"):
            (tmp_path / name).write_text(f"about {name}")

        context = await open_context(memory_files=["b.md", tmp_path / "a.md"], working_dir=tmp_path)

        expected = ["[Context from b.md]\n\nabout b.md", "[Context from a.md]\n\nabout a.md"]
        assert contents(await context.get_messages()) == contents(file.lines()) == expected
        assert {message["role"] for message in file.lines()} == {"system"}

    async def test_a_resumed_conversation_has_them_already(self, open_context: Any, tmp_path: Path) -> None:
        (tmp_path / "a.md").write_text("first")
        (await open_context(memory_files=[tmp_path / "a.md"])).close()
        (tmp_path / "a.md").write_text("changed")

        context = await open_context(memory_files=[tmp_path / "a.md"])

        assert contents(await context.get_messages()) == ["[Context from a.md]\n\nfirst"]

    async def test_home_is_expanded(self, open_context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / "a.md").write_text("mine")

        context = await open_context(memory_files=["~/a.md"])

        assert contents(await context.get_messages()) == ["[Context from a.md]\n\nmine"]

    async def test_what_cannot_be_used_is_skipped_and_told(
        self, open_context: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "latin.md").write_bytes(b"gr\xfc\xdfe")
        (tmp_path / "blank.md").write_text(" \n")

        with caplog.at_level(logging.DEBUG):
            context = await open_context(memory_files=["gone.md", ".", "latin.md", "blank.md"], working_dir=tmp_path)

        assert await context.get_messages() == []
        levels = {Path(record.args[0]).name: record.levelname for record in caplog.records if "memory" in record.msg}
        assert levels == {"gone.md": "WARNING", tmp_path.name: "WARNING", "latin.md": "ERROR", "blank.md": "DEBUG"}


class TestSettings:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("transcript_path", 5),
            ("transcript_path", ""),
            ("memory_files", "one.md"),
            ("memory_files", [1]),
            ("fsync", "perhaps"),
            ("truncate_boundary", "half"),
        ],
    )
    async def test_a_value_that_does_not_fit_names_the_key(self, key: str, value: Any) -> None:
        with pytest.raises(ValueError, match=f"context-persistent: config key '{key}' is .*, allowed"):
            await mount(MockCoordinator(), {key: value})

    async def test_the_deprecated_key_is_accepted_and_told(
        self, open_context: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO):
            await open_context(truncate_boundary="0.5")

        assert "'truncate_boundary' has no effect" in caplog.text

    async def test_truth_may_be_text(self, open_context: Any) -> None:
        assert (await open_context(fsync="true")).fsync is True

    def test_a_keyword_that_does_not_exist_is_an_error(self) -> None:
        with pytest.raises(TypeError, match="transcript"):
            PersistentContextManager(transcript="file.jsonl")
