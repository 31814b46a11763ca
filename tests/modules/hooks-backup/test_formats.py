"""What is in the files, and what can be read back from them."""

import gzip
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_hooks_backup import read_backup
from amplifier_module_hooks_backup.backup_hook import BackupStore
from hypothesis import given
from hypothesis import strategies as st

MESSAGES = [
    {"role": "user", "content": "Grüße  — \u2028 next"},
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "I look"}, {"type": "thinking", "thinking": "hm", "signature": "s"}],
        "tool_calls": [{"id": "c1", "tool": "look", "arguments": {"at": "x\ny"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "password=hunter2"},
]
READABLE = [("jsonl", False), ("jsonl", True), ("json", False), ("json", True)]


async def backed_up(mount_backups: Any, messages: list[Any], **config: Any) -> Path:
    backups = await mount_backups(**config)
    backups.context.messages += messages
    await backups.emit("context:pre_compact")
    (file,) = backups.files
    return Path(file)


@pytest.mark.parametrize(("form", "compress"), READABLE)
@pytest.mark.parametrize("include_metadata", [True, False])
async def test_what_was_written_is_read_back(
    mount_backups: Any, form: str, compress: bool, include_metadata: bool
) -> None:
    file = await backed_up(mount_backups, MESSAGES, format=form, compress=compress, include_metadata=include_metadata)

    backup = read_backup(str(file))

    assert file.name.endswith(f".{form}.gz" if compress else f".{form}")
    assert backup["messages"] == MESSAGES
    if include_metadata:
        stamp = "_".join(file.name.split("_")[2:4])
        assert backup["metadata"] == {
            "event": "pre_compact",
            "timestamp": stamp,
            "message_count": 3,
            "session_id": "test-session",
        }
    else:
        assert backup["metadata"] == {}


async def test_jsonl_is_the_metadata_and_then_one_message_per_line(mount_backups: Any) -> None:
    file = await backed_up(mount_backups, MESSAGES)

    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]

    assert lines[0].keys() == {"metadata"}
    assert lines[1:] == MESSAGES
    assert "Grüße" in file.read_text(encoding="utf-8")


async def test_json_is_one_indented_document(mount_backups: Any) -> None:
    file = await backed_up(mount_backups, MESSAGES, format="json")

    text = file.read_text(encoding="utf-8")

    assert json.loads(text).keys() == {"messages", "metadata"}
    assert text.startswith('{\n  "messages": [')


async def test_text_is_for_reading(mount_backups: Any) -> None:
    file = await backed_up(mount_backups, MESSAGES, format="text")

    paragraphs = file.read_text(encoding="utf-8").split("\n\n")

    assert file.suffix == ".txt"
    assert paragraphs[0].startswith("user: Grüße")
    assert paragraphs[1].startswith("assistant: I look\n")
    assert '"look"' in paragraphs[1]
    assert paragraphs[2] == "tool: password=hunter2"


@pytest.mark.parametrize("compress", [True, False])
async def test_a_text_backup_cannot_be_read_back(mount_backups: Any, compress: bool) -> None:
    file = await backed_up(mount_backups, MESSAGES, format="text", compress=compress)

    with pytest.raises(ValueError, match=r"only \.jsonl and \.json"):
        read_backup(file)


async def test_a_backup_is_private_and_verbatim(mount_backups: Any) -> None:
    backups = await mount_backups()
    backups.coordinator.register_capability("redaction.scrub", lambda value: "[REDACTED]")
    backups.say("password=hunter2")

    await backups.emit("context:pre_compact")

    (file,) = backups.files
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert backups.texts(file) == ["password=hunter2"]


@pytest.mark.parametrize(("form", "compress"), READABLE)
async def test_values_that_json_lacks_are_converted_and_odd_text_is_kept(
    mount_backups: Any, form: str, compress: bool
) -> None:
    message = {"role": "user", "content": "half a pair: \ud83d", "data": b"xyz", "path": Path("a")}

    file = await backed_up(mount_backups, [message], format=form, compress=compress)

    assert read_backup(file)["messages"] == [
        {"role": "user", "content": "half a pair: \ud83d", "data": "<bytes:3>", "path": "a"}
    ]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.jsonl", b'{"role": "user"}\n{"role": '),
        ("x.jsonl", b'["not a message"]\n'),
        ("x.jsonl", b'{"metadata": 7}\n'),
        ("x.jsonl", b"\xff\xfe"),
        ("x.json", b'{"messages": {}}'),
        ("x.json", b'{"metadata": {}}'),
        ("x.json", b'{"messages": [7]}'),
        ("x.json", b"[]"),
        ("x.json", b""),
        ("x.jsonl.gz", b"not compressed"),
        ("x.json.gz", gzip.compress(b'{"messages": []}', mtime=0)[:-6]),
        ("x.json.gz", gzip.compress(b'{"messages": []}', mtime=0)[:12] + b"\xff" * 20),
    ],
)
def test_a_damaged_backup_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)

    with pytest.raises(ValueError, match="damaged"):
        read_backup(tmp_path / name)


@pytest.mark.parametrize("name", ["x.yaml", "x", "x.gz", "x.txt.gz"])
def test_another_kind_of_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"{}")

    with pytest.raises(ValueError, match="not a backup"):
        read_backup(tmp_path / name)


def test_a_backup_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_backup(tmp_path / "x.jsonl")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=8,
)
messages = st.lists(
    st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), json_values, max_size=3).map(
        lambda fields: {**fields, "role": "user"}
    ),
    min_size=1,
    max_size=4,
)


@given(messages=messages, form=st.sampled_from(["jsonl", "json"]), compress=st.booleans())
def test_reading_undoes_writing(tmp_path_factory: Any, messages: list[Any], form: str, compress: bool) -> None:
    folder = tmp_path_factory.mktemp("backups")
    store = BackupStore(form=form, include_metadata=True, compress=compress, max_backups=0)

    path, _ = store.prepare("turn", messages, "s", {"event": "turn_end"}).write(folder)

    assert read_backup(path)["messages"] == messages
