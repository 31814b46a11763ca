"""When a backup is written, what it contains, and what everybody is told."""

import threading
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_hooks_backup import TranscriptBackupHook, mount, read_backup

from amplifier_core.testing import MockContextManager, MockCoordinator

LATE = "the context is closed"


async def test_the_messages_of_the_event_come_before_those_of_the_context(mount_backups: Any) -> None:
    backups = await mount_backups()
    backups.say("from the context")

    await backups.emit("context:pre_compact", messages=[{"role": "user", "content": "from the event"}])
    await backups.emit("context:pre_compact", messages=[])

    assert [backups.texts(file) for file in backups.files] == [["from the event"], ["from the context"]]


async def test_later_handlers_get_the_complete_event_and_the_place_of_the_backup(mount_backups: Any) -> None:
    backups = await mount_backups()
    backups.say("hello")

    result = await backups.emit("context:pre_compact", message_count=1, budget=10)

    assert result.data["backup_location"] == str(backups.files[0])
    assert (result.data["message_count"], result.data["budget"]) == (1, 10)


async def test_a_written_backup_is_announced(mount_backups: Any) -> None:
    backups = await mount_backups()
    backups.say("hello", "world")

    await backups.emit("context:pre_compact")

    ((event, data),) = backups.recorder.events
    (file,) = backups.files
    assert event == "backup:written"
    assert {key: data[key] for key in ("path", "message_count", "bytes", "reason")} == {
        "path": str(file),
        "message_count": 2,
        "bytes": file.stat().st_size,
        "reason": "pre_compact",
    }


async def test_two_backups_in_one_second_are_two_files(mount_backups: Any) -> None:
    backups = await mount_backups()
    second: list[Path] = []
    while not second:  # now and then a new second begins between two backups
        backups.say("word")
        await backups.emit("context:pre_compact")
        second = [file for file in backups.files if file.name.endswith("_test-session_2.jsonl")]

    first = second[0].with_name(second[0].name.replace("_2.jsonl", ".jsonl"))
    assert len(backups.texts(second[0])) == len(backups.texts(first)) + 1
    assert sorted(len(backups.texts(file)) for file in backups.files) == list(range(1, len(backups.files) + 1))


async def test_a_history_that_did_not_change_is_not_written_again(mount_backups: Any) -> None:
    backups = await mount_backups()
    backups.say("hello")

    first = await backups.emit("context:pre_compact")
    second = await backups.emit("context:pre_compact")

    assert len(backups.files) == 1
    assert first.data["backup_location"] == second.data["backup_location"]


async def test_a_last_message_that_changed_in_place_is_a_change(mount_backups: Any) -> None:
    backups = await mount_backups()
    backups.say("hello")
    await backups.emit("context:pre_compact")

    backups.context.messages[-1]["content"] = "good bye"
    await backups.emit("context:pre_compact")

    assert sorted(text for file in backups.files for text in backups.texts(file)) == ["good bye", "hello"]


async def test_a_backup_that_somebody_removed_is_written_again(mount_backups: Any) -> None:
    backups = await mount_backups()
    backups.say("hello")
    await backups.emit("context:pre_compact")
    backups.files[0].unlink()

    await backups.emit("context:pre_compact")

    assert len(backups.files) == 1


async def test_the_final_backup_is_written_once_whoever_comes_first(mount_backups: Any) -> None:
    backups = await mount_backups()
    backups.say("hello")

    await backups.emit("session:end", response="done")
    backups.say("too late")
    await backups.emit("session:end")
    backups.cleanup()
    backups.cleanup()

    (file,) = backups.of_kind("final")
    assert backups.texts(file) == ["hello"]
    assert read_backup(file)["metadata"]["response"] == "done"


async def test_cleanup_writes_the_final_backup_when_the_end_was_not_announced(mount_backups: Any) -> None:
    backups = await mount_backups()
    backups.say("hello")

    backups.cleanup()
    await backups.emit("session:end")

    (file,) = backups.of_kind("final")
    assert backups.texts(file) == ["hello"]


class SilentContext:
    """A context that tells its messages only while it is awaited."""

    def __init__(self) -> None:
        self.told = [{"role": "user", "content": "hello"}]

    async def get_messages(self) -> list[dict[str, Any]]:
        return list(self.told)


async def test_cleanup_falls_back_on_the_history_of_the_last_turn(mount_backups: Any) -> None:
    backups = await mount_backups()
    context = SilentContext()
    await backups.coordinator.mount("context", context)

    await backups.emit("orchestrator:complete")
    context.told.append({"role": "user", "content": "after the turn"})
    backups.cleanup()

    (file,) = backups.files
    assert backups.texts(file) == ["hello"]


@pytest.mark.parametrize("attribute", ["messages", "get_messages"])
async def test_a_context_that_fails_costs_nothing_but_the_backup(
    mount_backups: Any, attribute: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(SilentContext):
        @property
        def messages(self) -> list[dict[str, Any]]:
            raise RuntimeError(LATE)

        async def get_messages(self) -> list[dict[str, Any]]:
            raise RuntimeError(LATE)

    backups = await mount_backups(per_turn=True)
    await backups.coordinator.mount("context", Failing())

    for event in ("context:pre_compact", "orchestrator:complete", "session:end"):
        assert (await backups.emit(event)).action == "continue"
    backups.cleanup()

    assert backups.files == []
    assert LATE in caplog.text


@pytest.mark.parametrize("context", [None, MockContextManager()], ids=["no context", "nothing said"])
async def test_where_there_is_nothing_to_back_up_no_file_is_written_and_a_warning_says_so(
    mount_backups: Any, context: Any, caplog: pytest.LogCaptureFixture
) -> None:
    backups = await mount_backups()
    await backups.coordinator.mount("context", context)

    result = await backups.emit("context:pre_compact")

    assert (result.action, "backup_location" in result.data) == ("continue", False)
    assert not backups.folder.exists()
    assert "WARNING" in {record.levelname for record in caplog.records}


async def test_only_the_newest_backups_of_each_kind_are_kept(mount_backups: Any) -> None:
    backups = await mount_backups(max_backups=2, per_turn=True)
    for text in ("one", "two", "three", "four"):
        backups.say(text)
        await backups.emit("context:pre_compact")
        await backups.emit("orchestrator:complete")

    for kind in ("compact", "turn"):
        assert sorted(len(backups.texts(file)) for file in backups.of_kind(kind)) == [3, 4]


async def test_keeping_the_newest_leaves_all_other_files_alone(mount_backups: Any) -> None:
    backups = await mount_backups(max_backups=1)
    others = [
        "notes.txt",
        "transcript_compact_20200101_000000_other-session.jsonl",
        "transcript_compact_20200101_000000_test-session-2.jsonl",
        "transcript_final_20200101_000000_test-session.jsonl",
        "transcript_compact_20200101_000000.jsonl",
    ]
    backups.folder.mkdir()
    for name in (*others, "transcript_compact_20200101_000000_test-session.jsonl.gz"):
        (backups.folder / name).touch()
    backups.say("hello")

    await backups.emit("context:pre_compact")

    assert {file.name for file in backups.folder.iterdir()} - {Path(backups.of_kind("compact")[-1]).name} == set(others)


async def test_keeping_the_newest_does_not_take_another_session_for_a_second_backup(mount_backups: Any) -> None:
    one, other = await mount_backups(max_backups=1), await mount_backups(max_backups=1)
    one.coordinator.session_id, other.coordinator.session_id = "s", "s_2"
    for backups in (other, one):
        backups.say("hello")
        await backups.emit("context:pre_compact")

    assert {read_backup(file)["metadata"]["session_id"] for file in one.files} == {"s", "s_2"}


@pytest.mark.parametrize("session_id", ["a/b", "../x", "x_2", "ü" * 300, "a b"])
async def test_any_session_id_makes_a_name_inside_of_the_folder(mount_backups: Any, session_id: str) -> None:
    backups = await mount_backups()
    backups.coordinator.session_id = session_id
    backups.say("hello")

    await backups.emit("context:pre_compact")

    (file,) = backups.files
    assert file.parent == backups.folder
    assert read_backup(file)["metadata"]["session_id"] == session_id


async def test_the_folder_is_relative_to_the_working_directory_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = MockCoordinator()
    coordinator.register_capability("session.working_dir", str(tmp_path / "project"))
    await coordinator.mount("context", MockContextManager([{"role": "user", "content": "hello"}]))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    await mount(coordinator, {})
    await mount(coordinator, {"backup_dir": "~/kept"})

    await coordinator.hooks.emit("context:pre_compact", {})

    assert len(list((tmp_path / "project/.amplifier/transcripts").iterdir())) == 1
    assert len(list((tmp_path / "home/kept").iterdir())) == 1


async def test_a_session_without_a_working_directory_uses_that_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    coordinator = MockCoordinator()
    await coordinator.mount("context", MockContextManager([{"role": "user", "content": "hello"}]))
    cleanup = await mount(coordinator, None)

    cleanup()

    assert len(list((tmp_path / ".amplifier/transcripts").glob("transcript_final_*_test-session.jsonl"))) == 1


def test_nothing_is_written_by_the_constructor(tmp_path: Path) -> None:
    TranscriptBackupHook({"backup_dir": str(tmp_path / "backups")})

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("length", "in_thread"), [(1_000, False), (300_000, True)], ids=["small history", "large history"]
)
async def test_a_large_history_is_written_beside_the_event_loop(
    mount_backups: Any, monkeypatch: pytest.MonkeyPatch, length: int, in_thread: bool
) -> None:
    backups = await mount_backups()
    backups.say("x" * length)
    writers: list[bool] = []
    mkdir = Path.mkdir

    def noting_mkdir(path: Path, *args: Any, **options: Any) -> None:
        writers.append(threading.current_thread() is not threading.main_thread())
        mkdir(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", noting_mkdir)
    await backups.emit("context:pre_compact")

    assert len(backups.files) == 1
    assert set(writers) == {in_thread}


@pytest.mark.parametrize(
    ("enabled", "kinds"),
    [
        (["context:*"], ["compact"]),
        (["session:end"], ["final"]),
        (["orchestrator:complete"], ["turn"]),
        (["*"], ["compact", "final", "turn"]),
        ([], []),
    ],
)
async def test_events_that_are_not_enabled_cause_no_backup_and_neither_does_cleanup(
    mount_backups: Any, enabled: list[str], kinds: list[str]
) -> None:
    backups = await mount_backups(enabled_events=enabled, per_turn=True)
    backups.say("hello")

    for event in ("context:pre_compact", "orchestrator:complete"):
        await backups.emit(event)
    backups.cleanup()

    assert sorted(file.name.split("_")[1] for file in backups.files) == kinds


async def test_the_handlers_have_the_names_and_places_that_others_rely_on(mount_backups: Any) -> None:
    backups = await mount_backups()
    hooks = backups.coordinator.hooks
    for event, before, after in (
        ("context:pre_compact", 9, 11),
        ("session:end", 99, 101),
        ("orchestrator:complete", 99, 101),
    ):
        hooks.register(event, lambda *args: None, priority=after, name="after")
        hooks.register(event, lambda *args: None, priority=before, name="before")

    assert hooks.list_handlers("context:pre_compact")["context:pre_compact"] == [
        "before", "transcript-backup-compact", "after",
    ]  # fmt: skip
    assert hooks.list_handlers("session:end")["session:end"] == ["before", "transcript-backup-end", "after"]
    assert hooks.list_handlers("orchestrator:complete")["orchestrator:complete"] == [
        "before", "transcript-backup-turn", "after",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", "xml"),
        ("format", 7),
        ("backup_dir", 7),
        ("include_metadata", "perhaps"),
        ("compress", 1),
        ("per_turn", []),
        ("max_backups", -1),
        ("max_backups", "many"),
        ("enabled_events", "session:*"),
    ],
)
async def test_a_value_that_does_not_fit_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match="hooks-backup") as error:
        await mount(MockCoordinator(), {key: value})

    assert all(part in str(error.value) for part in (repr(key), repr(value), "allowed: "))


async def test_numbers_and_booleans_may_be_text(mount_backups: Any) -> None:
    backups = await mount_backups(max_backups="1", compress="true")
    for text in ("one", "two"):
        backups.say(text)
        await backups.emit("context:pre_compact")

    assert [file.suffix for file in backups.files] == [".gz"]
