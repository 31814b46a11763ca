"""The processes of a test run: together they tell what one process would, and the end of one costs one test."""

import re
import subprocess
import sys
from pathlib import Path

import plain_pytest
import pytest

CONFTEST = f"""
import sys
sys.path.append({str(Path(__file__).parents[1] / "stand_ins")!r})
from forked_run import ForkedRun
def pytest_configure(config):
    config.pluginmanager.register(ForkedRun(3))
"""
FILES = {
    "here/test_outcomes.py": """
        import pytest
        @pytest.fixture(scope="session")
        def kept(tmp_path_factory):
            yield tmp_path_factory.mktemp("kept")
            open("ended", "w").close()
        @pytest.mark.parametrize("number", range(5))
        def test_passes(kept, tmp_path, number): assert tmp_path.is_relative_to(kept.parent)
        def test_fails(kept): print("what was printed"); assert [1] == [2]
        def test_is_skipped(): pytest.skip("for a reason")
        """,
    "here/test_killed.py": """
        import os, signal
        def test_before(): pass
        def test_ends_its_process(): os.kill(os.getpid(), signal.SIGKILL)
        def test_after(): pass
        """,
    "there/test_elsewhere.py": """
        def test_elsewhere(): pass
        """,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(re.sub("^        ", "", text, flags=re.MULTILINE))
    return tmp_path


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-ra", *plain_pytest.options(folder / "temporary"), *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_what_the_processes_saw_is_told_together(folder: Path) -> None:
    ran = run(folder)

    assert ran.returncode == 1
    assert "2 failed, 8 passed, 1 skipped" in ran.stdout
    for told in (
        "FAILED here/test_outcomes.py::test_fails - assert [1] == [2]",
        "At index 0 diff: 1 != 2",
        "what was printed",
        "SKIPPED [1] here/test_outcomes.py:10: for a reason",
        "FAILED here/test_killed.py::test_ends_its_process",
        "the process that ran this test ended with -9",
    ):
        assert told in ran.stdout
    assert (folder / "ended").exists()


def test_no_file_is_begun_after_the_first_failure_that_ends_the_run(folder: Path) -> None:
    ran = run(folder, "-x", "here/test_outcomes.py")

    assert ran.returncode == 1
    assert "1 failed, 5 passed" in ran.stdout
