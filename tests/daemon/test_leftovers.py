"""What killed processes leave behind is gone after the next start."""

import os
import tempfile
from pathlib import Path

import pytest

from amplifierd import open_home

NAME = f".collections.yaml.{'0' * 32}.tmp"


def test_a_home_that_is_opened_has_no_leftovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, scratch = tmp_path / "home", tmp_path / "tmp"
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    (scratch / "amplifier-install-dead" / "host").mkdir(parents=True)
    old = [home / "share" / NAME, home / "config" / NAME, home / "cache" / "git" / NAME]
    staging = home / "cache" / "git" / ".staging-abc-1" / "tree"
    staging.mkdir(parents=True)
    for path in old:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for path in (*old, staging.parent):
        os.utime(path, (0, 0))
    kept = [home / "share" / f".lock.{'1' * 32}.tmp", home / "share" / "notes.tmp"]
    kept[0].touch()
    kept[1].touch()
    os.utime(kept[1], (0, 0))

    open_home(home)

    assert list(scratch.iterdir()) == []
    assert [path for path in (*old, staging.parent) if path.exists()] == []
    assert [path for path in kept if path.exists()] == kept
