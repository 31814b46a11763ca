"""Sessions whose process is killed at random moments: `make soak` does it a hundred times."""

import sys
from pathlib import Path

import warm_python
from sandboxes import needs_sandbox

SOAKS = Path(__file__).parents[1] / "soak"


@needs_sandbox  # without one a shell command goes on after its process was killed
def test_every_session_resumes_and_nothing_is_lost_or_done_twice() -> None:
    ran = warm_python.run(
        [sys.executable, SOAKS, "crash_soak", "--kills", "10", "--seed", "1"], capture_output=True, text=True
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "10 kills" in ran.stdout


def test_a_repair_that_is_killed_at_any_step_is_finished_and_told_once() -> None:
    ran = warm_python.run([sys.executable, SOAKS, "killed_repairs", "12"], capture_output=True, text=True)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "12 repairs were killed" in ran.stdout
