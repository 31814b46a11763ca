"""Mentions read what the session may read, and nothing that would hang."""

import os
from pathlib import Path

import pytest

from amplifier_foundation.mentions import BaseMentionResolver, expand_mentions_in_instruction, load_mentions
from amplifier_system.policy import SessionPolicy


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home/.ssh").mkdir(parents=True)
    path = tmp_path / "home/.ssh/id_rsa"
    path.write_text("PRIVATE")
    return path


async def test_a_private_key_is_not_mentioned_into_a_request(tmp_path: Path, key: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/innocent.md").symlink_to(key)
    resolver = BaseMentionResolver(base_path=tmp_path / "work")

    for mention in ("@~/.ssh/id_rsa", "@innocent.md", "@./innocent.md"):
        text = await expand_mentions_in_instruction(f"read {mention} please", resolver=resolver)
        assert "PRIVATE" not in text
        (result,) = await load_mentions(mention, resolver)
        assert result.failure_reason == "permission_error"


async def test_the_policy_of_a_session_counts(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.md").write_text("internal")
    policy = SessionPolicy.of({"read": {"deny": ["data"]}}, working_dir=tmp_path)

    (result,) = await load_mentions("@data/a.md", BaseMentionResolver(base_path=tmp_path), policy=policy)

    assert (result.content, result.failure_reason) == (None, "permission_error")


async def test_a_pipe_is_refused_and_hangs_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")

    (result,) = await load_mentions("@pipe.md", BaseMentionResolver(base_path=tmp_path))

    assert result.failure_reason == "not_regular_file"
