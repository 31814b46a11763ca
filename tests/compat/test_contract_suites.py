"""Our contract suites, run by the reference kernel's interpreter: what fails there is a decision we can name.

They use the public API only. A difference that nobody explains fails here, and so does an explanation that is no longer
needed.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from known_differences import DIFFERENCES

ROOT = Path(__file__).parents[2]


def failures_at_the_peer(suite: str, report: Path) -> set[str]:
    """Run a suite with the peer's interpreter and return the tests that fail, of a parametrised one its name."""
    python = os.environ.get("AMPLIFIER_PEER_PYTHON")
    if python is None:
        pytest.fail("AMPLIFIER_PEER_PYTHON names no interpreter with the reference kernel; run: make compat")
    command = [python, "-B", "-m", "pytest", f"tests/core/test_{suite}.py", "--junitxml", str(report)]
    quietly = ["--quiet", "--tb=no", "-p", "no:cacheprovider", "-W", "default"]
    fixed = {**os.environ, "PYTHONHASHSEED": "0"}  # the reference reads sections in the order of a set
    run = subprocess.run([*command, *quietly], cwd=ROOT, env=fixed, capture_output=True, text=True, check=False)
    assert report.is_file(), run.stdout + run.stderr
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    assert len(cases) > 1, run.stdout
    failed = (case for case in cases if case.find("failure") is not None or case.find("error") is not None)
    return {str(case.get("name")).partition("[")[0] for case in failed}


@pytest.mark.parametrize("suite", DIFFERENCES)
def test_what_the_reference_does_otherwise_is_a_decision(
    suite: str, tmp_path: Path, record_property: Callable[[str, str], None]
) -> None:
    explained = {test: decision for decision, tests in DIFFERENCES[suite].items() for test in tests}

    failed = failures_at_the_peer(suite, tmp_path / "report.xml")

    for test in sorted(failed & explained.keys()):
        record_property(f"{suite}: {test}", explained[test])
    assert failed - explained.keys() == set(), "nobody explains these differences"
    assert explained.keys() - failed == set(), "these differ no longer"
