"""The session's policy binds the file tools, whatever their own lists allow."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_system.policy import SessionPolicy

MountFiles = Callable[..., Awaitable[Any]]


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private key in the home directory of the test."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home/.ssh").mkdir(parents=True)
    path = tmp_path / "home/.ssh/id_rsa"
    path.write_text("private")
    return path


async def test_a_key_cannot_be_read_by_any_name(mount_files: MountFiles, key: Path) -> None:
    files = await mount_files(allowed_read_paths=["/", "~/.ssh"])
    (files.folder / "innocent").symlink_to(key)

    for path in (key, "~/.ssh/id_rsa", "innocent", "/proc/self/environ"):
        result = await files.read(path)
        assert not result.success
        assert result.error is not None
        assert result.error["code"] == "access_denied"
        assert "policy.read.deny" in result.error["message"]


async def test_the_configuration_of_a_repository_cannot_be_written(mount_files: MountFiles) -> None:
    files = await mount_files()
    (files.folder / ".git").mkdir()
    (files.folder / ".git/config").write_text("[core]\n")

    written = await files.write(".git/config", "[core]\nfsmonitor = ./run-me\n")
    edited = await files.edit(".git/config", "[core]", "[core]\nfsmonitor = ./run-me")

    assert (written.success, edited.success) == (False, False)
    assert (files.folder / ".git/config").read_text() == "[core]\n"


async def test_a_policy_of_the_application_outranks_the_tool_s_own_lists(mount_files: MountFiles) -> None:
    files = await mount_files(allowed_write_paths=["/"])
    rules = {"write": {"allow": ["out"]}, "read": {"allow": ["."]}}
    files.coordinator.register_capability("session.policy", SessionPolicy.of(rules, working_dir=files.folder))

    assert (await files.write("out/a.txt", "x")).success
    refused = await files.write("a.txt", "x")
    assert refused.error is not None
    assert refused.error["rule"] == "write.allow"
    assert not (await files.read("/etc/hostname")).success
    assert files.names == ["out", "out/a.txt"]
