"""Trust: which directories a home's owner trusts, and which are never snapshotted."""

import json
import os
import py_compile
import stat
from pathlib import Path

import pytest

from amplifierd import Home, open_home
from amplifierd.exceptions import FormatUnsupportedError, SettingsError, SnapshotRefusedError, TrustError


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return open_home(tmp_path / "home")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "projects" / "one"
    folder.mkdir(parents=True)
    return folder


def test_a_trusted_directory_contains_what_is_below_it(home: Home, project: Path) -> None:
    (project / "src").mkdir()
    assert not home.trust.contains(project)

    home.trust.add(project)
    home.trust.add(str(project))

    assert home.trust.list() == (project,)
    assert home.trust.contains(project)
    assert home.trust.contains(project / "src")
    assert not home.trust.contains(project.parent)
    assert not home.trust.contains(project.parent / "one-more")
    assert not home.trust.contains(project / ".." / "two")


def test_trust_is_taken_back(home: Home, project: Path) -> None:
    home.trust.add(project)

    assert home.trust.remove(project)
    assert not home.trust.remove(project)
    assert home.trust.list() == ()
    assert not home.trust.contains(project)


def test_a_no_is_remembered_until_the_directory_is_trusted(home: Home, project: Path) -> None:
    home.trust.decline(project)
    assert home.trust.has_declined(project)
    assert not home.trust.has_declined(project.parent)
    assert not home.trust.contains(project)

    home.trust.add(project)

    assert not home.trust.has_declined(project)
    assert home.trust.contains(project)


def test_symlinks_are_resolved_on_both_sides(home: Home, project: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(project)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (project / "way-out").symlink_to(elsewhere)
    (project / "loop").symlink_to("loop")

    home.trust.add(tmp_path / "alias")

    assert home.trust.list() == (project,)
    assert home.trust.contains(tmp_path / "alias")
    assert not home.trust.contains(project / "way-out")
    assert home.trust.contains(project / "loop")


@pytest.mark.parametrize(
    ("directory", "reason"),
    [("/", "root of the file system"), ("~", "your home directory"), ("~/..", "your home directory is inside")],
)
def test_the_home_directory_the_root_and_what_lies_between_cannot_be_trusted_nor_snapshotted(
    home: Home, tmp_path: Path, directory: str, reason: str
) -> None:
    with pytest.raises(TrustError, match=reason):
        home.trust.add(directory)

    assert home.trust.list() == ()
    assert reason in home.trust.why_no_snapshot(directory, is_trusted=True)
    with pytest.raises(SnapshotRefusedError, match=reason):
        home.checkpoints_for(tmp_path / "checkpoints", Path(directory).expanduser(), is_trusted=True)


def test_an_entry_that_could_not_be_added_does_not_count_when_it_was_written_by_hand(home: Home, project: Path) -> None:
    home.paths.trust_file.parent.mkdir(parents=True)
    home.paths.trust_file.write_text('{"format_version": 1, "directories": ["/"]}')

    assert not home.trust.contains(project)


def test_only_a_directory_can_be_trusted(home: Home, project: Path) -> None:
    (project / "file").write_text("")

    for wrong in (project / "file", project / "missing"):
        with pytest.raises(TrustError, match="is not a directory"):
            home.trust.add(wrong)


def test_a_directory_of_a_user_who_is_not_known_is_refused(home: Home) -> None:
    with pytest.raises(TrustError, match="not known"):
        home.trust.add("~nobody-of-that-name/project")


def test_a_directory_whose_name_cannot_be_written_down_is_refused(home: Home, project: Path) -> None:
    odd = project / os.fsdecode(b"caf\xe9")
    odd.mkdir()

    with pytest.raises(TrustError, match="is not UTF-8"):
        home.trust.add(odd)


def test_the_file_is_stored_with_its_version_for_the_owner_alone(home: Home, project: Path) -> None:
    home.trust.add(project)

    stored = json.loads(home.paths.trust_file.read_text())
    assert stored == {"format_version": 1, "directories": [str(project)]}
    assert stat.S_IMODE(home.paths.trust_file.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("contents", ["{", "[]", '{"format_version": 1}', '{"format_version": 1, "directories": 3}'])
def test_a_damaged_file_is_said_and_trusts_nothing(home: Home, project: Path, contents: str) -> None:
    home.trust.add(project)
    home.paths.trust_file.write_text(contents)

    with pytest.raises(SettingsError, match=r"trust\.json is damaged"):
        home.trust.contains(project)
    with pytest.raises(SettingsError, match=r"trust\.json is damaged"):
        home.trust.add(project)
    assert home.paths.trust_file.read_text() == contents


def test_a_file_of_a_newer_version_is_refused(home: Home, project: Path) -> None:
    home.trust.add(project)
    home.paths.trust_file.write_text('{"format_version": 2, "directories": []}')

    with pytest.raises(FormatUnsupportedError, match="has format 2"):
        home.trust.list()


async def test_a_trusted_directory_is_snapshotted_within_the_bounds_of_the_settings(
    tmp_path: Path, project: Path
) -> None:
    home = open_home(tmp_path / "home", overrides={"checkpoints": {"max_files": 1}})
    place = home.paths.sessions / "one" / "checkpoints"
    for name in ("a", "b"):
        (project / name).write_text(name)
    with pytest.raises(SnapshotRefusedError, match="is not a trusted directory"):
        home.checkpoints_for(place, project)

    home.trust.add(project)
    checkpoint = await home.checkpoints_for(place, project).take(1)

    assert "more than 1 files (checkpoints.max_files)" in checkpoint.reason


async def test_who_opens_a_session_in_a_directory_vouches_for_it(home: Home, project: Path) -> None:
    (project / "a").write_text("a")

    checkpoints = home.checkpoints_for(home.paths.sessions / "one" / "checkpoints", project, is_trusted=True)

    assert (await checkpoints.take(1)).files == 1
    assert home.trust.list() == ()


async def test_a_home_inside_the_working_directory_is_left_out(tmp_path: Path, project: Path) -> None:
    home = open_home(project / ".amplifierd")
    home.trust.add(project)
    (project / "a").write_text("a")

    checkpoints = home.checkpoints_for(home.paths.sessions / "one" / "checkpoints", project)

    assert (await checkpoints.take(1)).files == 1


def test_checkpoints_can_be_switched_off(tmp_path: Path, project: Path) -> None:
    home = open_home(tmp_path / "home", overrides={"checkpoints": {"enabled": False}})

    with pytest.raises(SnapshotRefusedError, match=r"switched off \(checkpoints\.enabled\)"):
        home.checkpoints_for(tmp_path / "checkpoints", project, is_trusted=True)


PACKAGE = ".amplifier/modules/hooks-note/amplifier_module_hooks_note"


@pytest.mark.parametrize("name", [f"{PACKAGE}/logs/__init__.py", f"{PACKAGE}/sessions.py", f"{PACKAGE}/more.jsonl"])
def test_code_counts_whatever_its_folder_is_called(home: Home, project: Path, name: str) -> None:
    (project / name).parent.mkdir(parents=True)
    home.trust.add(project)

    (project / name).write_text("import os\n")

    assert not home.trust.is_unchanged(project)


@pytest.mark.parametrize("name", [".amplifier/logs/today", ".amplifier/sessions/one/transcript", ".amplifier/a.jsonl"])
def test_what_sessions_write_beside_their_settings_changes_no_trust(home: Home, project: Path, name: str) -> None:
    home.trust.add(project)
    (project / name).parent.mkdir(parents=True)

    (project / name).write_text("Today.\n")

    assert home.trust.is_unchanged(project)


@pytest.mark.parametrize("mode", py_compile.PycInvalidationMode)
def test_bytecode_that_python_does_not_make_by_itself_counts(
    home: Home, project: Path, mode: py_compile.PycInvalidationMode
) -> None:
    source = project / PACKAGE / "__init__.py"
    source.parent.mkdir(parents=True)
    source.write_text("ONE = 1\n")
    home.trust.add(project)

    py_compile.compile(str(source), invalidation_mode=mode)

    assert home.trust.is_unchanged(project) is (mode is py_compile.PycInvalidationMode.TIMESTAMP)


@pytest.mark.parametrize(
    ("settles", "text"),
    [
        (".mcp.json", '{"mcpServers": {"s": {"command": "python", "args": ["tools/server.py", "-v"]}}}'),
        (
            ".amplifier/overlay.md",
            "---\ntools:\n- {module: tool-mcp, config: {servers: {s: {command: ./tools/server.py}}}}\n---\n",
        ),
        (
            ".amplifier/overlays/a/b.md",
            "---\ntools: [{module: tool-mcp, config: {config_file: tools/servers.json}}]\n---\n",
        ),
        (".amplifier/settings.yaml", "command: sh ../tools/server.py  # not the file named notes.md\n"),
    ],
)
def test_a_program_that_settings_name_counts_wherever_it_is(home: Home, project: Path, settles: str, text: str) -> None:
    for name, content in {
        settles: text,
        "tools/server.py": "import this\n",
        "tools/servers.json": '{"mcpServers": {"s": {"command": "tools/server.py"}}}',
        "notes.md": "Today.\n",
    }.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(content)
    home.trust.add(project)

    (project / "notes.md").write_text("Tomorrow.\n")
    assert home.trust.is_unchanged(project)
    (project / "tools/server.py").write_text("import os\n")

    assert next(home.trust.differences(project)).startswith("tools/server.py: changed")
