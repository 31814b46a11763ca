"""Patches that fit, that do not, and that leave nothing half done."""

from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_apply_patch import ApplyPatchTool, mount

from amplifier_core import ToolResult
from amplifier_core.testing import EventRecorder, MockCoordinator

TEXT = "import os\n\n\ndef a():\n    return 1\n\n\ndef b():\n    return 1\n"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text(TEXT)
    (tmp_path / "old.txt").write_text("one\ntwo\n")
    return tmp_path


def envelope(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def names_in(work: Path) -> list[str]:
    return [path.name for path in work.iterdir()]


def files_in(work: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in work.iterdir()}


class Desk:
    def __init__(self, work: Path, **config: Any) -> None:
        self.coordinator = MockCoordinator()
        self.coordinator.register_capability("session.working_dir", str(work))
        self.recorder = EventRecorder()
        self.coordinator.hooks.register("apply-patch:applied", self.recorder.record, name="recorder")
        self.tool = ApplyPatchTool(config, self.coordinator)

    async def patch(self, *lines: str) -> ToolResult:
        return await self.tool.execute({"patch": envelope(*lines)})

    @property
    def applied(self) -> list[tuple[str, str]]:
        return [(data["operation"], data["path"]) for _, data in self.recorder.events]


async def test_one_patch_adds_updates_moves_and_deletes(work: Path) -> None:
    (work / "gone.txt").write_text("x\n")
    desk = Desk(work)

    result = await desk.patch(
        *("*** Add File: new/b.txt", "+hello", "+", "*** Update File: a.py"),
        *("@@ def b():", "-    return 1", "+    return 2"),
        *("*** Update File: old.txt", "*** Move to: moved.txt", "@@", " one", "-two", "+zwei"),
        "*** Delete File: gone.txt",
    )

    assert result.output == "A new/b.txt\nM a.py\nR old.txt -> moved.txt\nD gone.txt"
    assert (work / "new/b.txt").read_text() == "hello\n\n"
    assert (work / "a.py").read_text() == TEXT.removesuffix("    return 1\n") + "    return 2\n"
    assert (work / "moved.txt").read_text() == "one\nzwei\n"
    assert sorted(names_in(work)) == ["a.py", "moved.txt", "new"]
    assert desk.applied == [("add", "new/b.txt"), ("update", "a.py"), ("rename", "moved.txt"), ("delete", "gone.txt")]


@pytest.mark.parametrize("last", ["*** Delete File: missing.txt", "*** Add File: a.py", "*** Add File: ../out.txt"])
async def test_what_fails_in_the_last_file_changes_none(work: Path, last: str) -> None:
    before = files_in(work)

    result = await Desk(work).patch(
        "*** Add File: new.txt",
        "+x",
        "*** Update File: old.txt",
        "@@",
        "-one",
        "+eins",
        last,
        *(["+x"] * ("Add" in last)),
    )

    assert not result.success
    assert files_in(work) == before


async def test_what_cannot_be_written_takes_the_others_back(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from amplifier_kit.tools.workspace import Entry

    whole = Entry.replace

    def failing(self: Entry, data: bytes, *rest: Any) -> Any:
        if b"fails" in data:
            raise OSError(28, "No space left on device")
        return whole(self, data, *rest)

    monkeypatch.setattr(Entry, "replace", failing)
    before = files_in(work)

    result = await Desk(work).patch(
        *("*** Add File: new.txt", "+x", "*** Update File: old.txt", "*** Move to: other.txt", "@@", "-one", "+eins"),
        *("*** Delete File: a.py", "*** Add File: last.txt", "+fails"),
    )

    assert result.error is not None
    assert (result.error["code"], result.error["errno"]) == ("io_error", 28)
    assert files_in(work) == before


async def test_lines_that_stand_in_several_places_are_named(work: Path) -> None:
    result = await Desk(work).patch("*** Update File: a.py", "@@", "-    return 1", "+    return 2")

    assert result.error is not None
    assert (result.error["code"], result.error["line_numbers"]) == ("ambiguous_context", [5, 9])


async def test_a_mismatch_shows_the_file_as_it_is(work: Path) -> None:
    (work / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 301)))

    result = await Desk(work).patch("*** Update File: long.txt", "@@", "-nothing like it", "+x")

    assert result.error is not None
    assert result.error["code"] == "context_mismatch"
    lines = result.error["message"].splitlines()
    assert (lines[1], lines[134], lines[135], lines[136]) == (
        "     1\tline 1",
        "   134\tline 134",
        "… 100 lines …",
        "   235\tline 235",
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"one\r\ntwo\r\n", b"one\r\nzwei\r\n"),
        (b"one\ntwo", b"one\nzwei"),
        (b"\xef\xbb\xbfone\ntwo\n", b"\xef\xbb\xbfone\nzwei\n"),
        (b"one  \ntwo\t\n", b"one  \nzwei\n"),
        (b"  one\n  two\n", b"  one\nzwei\n"),
    ],
    ids=["crlf", "no newline at the end", "mark", "space at the end", "indented"],
)
async def test_what_the_patch_does_not_change_stays_as_it_is(work: Path, before: bytes, after: bytes) -> None:
    (work / "old.txt").write_bytes(before)

    assert (await Desk(work).patch("*** Update File: old.txt", "@@", " one", "-two", "+zwei")).success

    assert (work / "old.txt").read_bytes() == after


UNIFIED = """\
diff --git a/old.txt b/old.txt
index 1..2 100644
--- a/old.txt
+++ b/old.txt
@@ -1,2 +1,2 @@
 one
-two
+zwei
--- /dev/null
+++ b/new.txt
@@ -0,0 +1 @@
+hello
\\ No newline at end of file
"""


async def test_a_unified_diff_is_taken_as_well(work: Path) -> None:
    result = await Desk(work).tool.execute({"patch": UNIFIED})

    assert result.output == "M old.txt\nA new.txt"
    assert ((work / "old.txt").read_text(), (work / "new.txt").read_text()) == ("one\nzwei\n", "hello\n")


@pytest.mark.parametrize("engine", ["native", "function", "auto"])
async def test_operations_on_one_file_are_taken_whatever_is_shown(work: Path, engine: str) -> None:
    desk = Desk(work, engine=engine)

    for given in (
        {"type": "create_file", "path": "n.txt", "diff": "--- /dev/null\n+++ b/n.txt\n@@ -0,0 +1,2 @@\n+a\nb\n"},
        {"type": "update_file", "path": "n.txt", "diff": "@@\n a\n-b\n+c\n"},
        {"operation": {"type": "delete_file", "path": "old.txt"}},
    ):
        assert (await desk.tool.execute(given)).success

    assert (work / "n.txt").read_text() == "a\nc\n"
    assert desk.applied == [("create", "n.txt"), ("update", "n.txt"), ("delete", "old.txt")]
    assert list(desk.tool.input_schema["properties"]) == (["type", "path", "diff"] if engine == "native" else ["patch"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"type": "update_file", "path": "old.txt", "diff": envelope("*** Delete File: old.txt")}, "envelope"),
        ({"patch": "nonsense"}, "must begin"),
        ({"patch": "*** Begin Patch\n*** Delete File: old.txt"}, "does not end"),
        ({"patch": envelope()}, "names no file"),
        ({"patch": envelope("*** Add File: x", "no sign")}, "does not begin with +"),
        ({"patch": envelope("*** Update File: old.txt", "@@", "*one")}, "begins with none"),
        ({"patch": envelope("*** Update File: old.txt")}, "changes nothing"),
        ({"patch": envelope(*["*** Delete File: old.txt"] * 2)}, "more than once"),
        ({"type": "rename_file", "path": "old.txt"}, "is none of"),
    ],
)
async def test_what_is_no_patch_is_explained(work: Path, given: dict[str, Any], words: str) -> None:
    result = await Desk(work).tool.execute(given)

    assert result.error is not None
    assert result.error["code"] == "invalid_patch"
    assert words in result.error["message"]
    assert (work / "old.txt").exists()


async def test_denied_comes_before_allowed_and_allowed_before_the_rest(work: Path) -> None:
    outside = work / "outside"
    outside.mkdir()
    inside = work / "inside"
    (inside / "secret").mkdir(parents=True)
    (inside / "link").symlink_to(outside)
    desk = Desk(inside, denied_write_paths=["secret"])

    codes = [(await desk.patch(f"*** Add File: {path}", "+x")).error for path in ("secret/x", "../x", "link/x", "fine")]

    assert [code and code["code"] for code in codes] == ["access_denied", "access_denied", "access_denied", None]


async def test_what_the_session_has_not_read_is_not_changed_where_that_is_enforced(work: Path) -> None:
    from amplifier_module_tool_filesystem import mount as mount_files

    desk = Desk(work)
    await mount_files(desk.coordinator, {"read_before_write": "enforce"})
    lines = ("*** Update File: old.txt", "@@", "-one", "+eins")

    refused = await desk.patch(*lines)
    await desk.coordinator.get("tools")["read_file"].execute({"file_path": "old.txt"})

    assert refused.error is not None
    assert refused.error["code"] == "not_read"
    assert (await desk.patch(*lines)).success


async def test_the_engine_is_a_capability_and_another_one_is_refused() -> None:
    class Vendor:
        native_tools = ("apply_patch",)

    for providers, config, engine in (
        ({}, {}, "function"),
        ({"openai": Vendor()}, {}, "native"),
        ({}, {"engine": "native"}, "native"),
    ):
        coordinator = MockCoordinator()
        for name, provider in providers.items():
            await coordinator.mount("providers", provider, name=name)
        await mount(coordinator, config)
        assert coordinator.get_capability("apply_patch.engine") == engine
    with pytest.raises(ValueError, match="engine"):
        await mount(MockCoordinator(), {"engine": "magic"})
