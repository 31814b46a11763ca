"""The daemon as a service of the user: the unit that is written, and what systemd is told."""

import configparser
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from amplifierd.control.main import main

NAME = "amplifierd.service"


@pytest.fixture
def unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the unit of a user is, on a machine without systemd."""
    (tmp_path / "bin").mkdir()
    for name, folder in {"XDG_CONFIG_HOME": "config", "XDG_RUNTIME_DIR": "runtime", "PATH": "bin"}.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    return tmp_path / "config/systemd/user" / NAME


@pytest.fixture
def systemd(tmp_path: Path, unit: Path) -> Callable[[int], list[str]]:
    """Let systemd run, and fail with a code from now on; returns what it was told so far."""
    told = tmp_path / "told"
    told.touch()
    (tmp_path / "runtime/systemd").mkdir(parents=True)

    def systemd(code: int = 0) -> list[str]:
        systemctl = tmp_path / "bin/systemctl"
        systemctl.write_text(f'#!/bin/sh\necho "$@" >> "{told}"\necho "Unit is masked." >&2\nexit {code}\n')
        systemctl.chmod(0o700)
        return told.read_text().splitlines()

    return systemd


def _read(unit: Path) -> dict[str, dict[str, str]]:
    """Return what a unit says, by section."""
    written = configparser.ConfigParser(interpolation=None)
    written.optionxform = str  # type: ignore[assignment,method-assign] # as the module's documentation has it
    written.read(unit)
    return {
        name: {key: value.replace("%%", "%") for key, value in written[name].items()} for name in written.sections()
    }


def test_a_service_uses_the_settings_file_that_was_named(unit: Path, tmp_path: Path) -> None:
    settings = tmp_path / "my settings.yaml"

    assert main(["--config", str(settings), "service", "install"]) == 0

    assert shlex.split(_read(unit)["Service"]["ExecStart"])[3:] == ["--config", str(settings), "serve"]


def test_without_systemd_the_unit_is_written_and_says_how_it_is_used(
    unit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / 'my "home", 100%'

    assert main(["--home", str(home), "service", "install"]) == 0

    said = capsys.readouterr().out
    assert f"wrote {unit}" in said
    assert "systemctl --user enable --now amplifierd" in said
    written = _read(unit)
    assert shlex.split(written["Service"]["ExecStart"]) == [sys.executable, "-m", "amplifierd", "serve"]
    assert shlex.split(written["Service"]["Environment"]) == [f"AMPLIFIERD_HOME={home}"]
    assert written["Install"]["WantedBy"] == "default.target"

    for answer in (f"removed {unit}", "there is no unit"):
        assert main(["service", "uninstall"]) == 0
        assert answer in capsys.readouterr().out
        assert not unit.exists()


def test_systemd_starts_it_now_and_with_the_machine_and_forgets_it_again(
    unit: Path, systemd: Callable[[int], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systemd(0)

    assert main(["--home", str(tmp_path / "home"), "service", "install"]) == 0
    assert systemd(0) == ["--user daemon-reload", f"--user enable --now {NAME}"]
    assert "does not run here" not in capsys.readouterr().out

    assert main(["service", "uninstall"]) == 0
    assert systemd(0)[2:] == [f"--user disable --now {NAME}", "--user daemon-reload"]
    assert not unit.exists()


def test_what_systemd_refuses_is_told(
    unit: Path, systemd: Callable[[int], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systemd(1)

    assert main(["--home", str(tmp_path / "home"), "service", "install"]) == 2

    assert "systemctl --user daemon-reload failed: Unit is masked." in capsys.readouterr().err
