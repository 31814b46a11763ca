"""The smallest example starts a session from nothing, and tells what happens."""

import re
import sys
from pathlib import Path

import pytest
import warm_python
from offline_example import run_offline

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples/hello_kernel.py"
MODULES = sorted(path for path in (ROOT / "examples/modules").iterdir() if path.is_dir())


def test_a_session_counts_the_words_of_a_file_and_prints_every_event(tmp_path: Path) -> None:
    (tmp_path / "song.txt").write_text("The cat and the dog\nand the bird's song\n")

    printed = run_offline(SCRIPT, "song.txt", folder=tmp_path)

    assert re.findall(r"^ +(\d+)  (\S+)", printed, re.MULTILINE) == [
        ("1", "session:start"),
        ("2", "prompt:submit"),
        ("3", "execution:start"),
        ("4", "provider:request"),
        ("5", "llm:request"),
        ("6", "llm:response"),
        ("7", "provider:response"),
        ("8", "tool:pre"),
        ("9", "tool:post"),
        ("10", "provider:request"),
        ("11", "llm:request"),
        ("12", "llm:response"),
        ("13", "provider:response"),
        ("14", "prompt:complete"),
        ("15", "orchestrator:complete"),
        ("16", "execution:end"),
        ("17", "session:end"),
    ]
    assert "word_count {'path': 'song.txt'}" in printed
    assert 'The answer: song.txt has 9 words on 2 lines; it uses "the" most, 3 times.' in printed.splitlines()


def test_it_names_the_modules_of_its_plan(tmp_path: Path) -> None:
    printed = run_offline(SCRIPT, folder=tmp_path)

    assert all(f" {module.name} " in printed for module in MODULES)
    assert "0 errors, 0 warnings" in printed
    assert "Not loaded" not in printed


def test_a_file_that_is_not_there_is_told_in_the_answer(tmp_path: Path) -> None:
    printed = run_offline(SCRIPT, "missing.txt", folder=tmp_path)

    assert f"The answer: That did not work: there is no file 'missing.txt' in '{tmp_path.name}'" in printed


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_every_example_module_passes_the_validation_command(module: Path) -> None:
    command = [sys.executable, "-m", "amplifier_core", "validate", str(module)]

    run = warm_python.run(command, capture_output=True, text=True, check=False)

    assert (run.returncode, run.stderr) == (0, ""), run.stdout
    assert "(0 errors, 0 warnings)" in run.stdout


def test_there_is_an_example_of_every_type() -> None:
    assert [module.name.partition("-")[0] for module in MODULES] == ["context", "hooks", "loop", "provider", "tool"]
