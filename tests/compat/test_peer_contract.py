"""Code written against the reference kernel finds every name, field, default, event and error here.

What we leave out and what we add is listed; anything else that differs is a mistake.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

Contract = dict[str, Any]

DESCRIBE = Path(__file__).with_name("describe.py")

NATIVE = {"RUST_AVAILABLE", "RustCancellationToken", "RustCoordinator", "RustHookRegistry", "RustSession"}
OUR_EXPORTS = {"MockProvider", "TestCoordinator"}
OUR_FIELDS = {"models.SessionStatus": {"load_failures": "[]"}}
# A tool's schema is optional, and an orchestrator may do without further keywords.
OUR_PROTOCOLS = {
    "Orchestrator": {"execute": ["self", "prompt", "context", "providers", "tools", "hooks"]},
    "Tool": {"name": "property", "description": "property", "execute": ["self", "input"]},
}


def described_by(python: str) -> Contract:
    run = subprocess.run([python, "-I", "-B", str(DESCRIBE)], capture_output=True, text=True, check=False)
    assert run.stdout.endswith("}\n"), run.stderr  # the exit code tells nothing: see the end of describe.py
    contract: Contract = json.loads(run.stdout)
    return contract


@pytest.fixture(scope="module")
def ours() -> Contract:
    return described_by(sys.executable)


@pytest.fixture(scope="module")
def theirs() -> Contract:
    python = os.environ.get("AMPLIFIER_PEER_PYTHON")
    if python is None:
        pytest.fail("AMPLIFIER_PEER_PYTHON names no interpreter with the reference kernel; run: make compat")
    return described_by(python)


def test_the_peer_is_the_release_we_follow(theirs: Contract) -> None:
    assert theirs["version"] == "2.0.2"


def test_we_export_what_the_reference_exports_without_its_native_engine(ours: Contract, theirs: Contract) -> None:
    assert set(ours["exports"]) == set(theirs["exports"]) - NATIVE | OUR_EXPORTS


def test_every_name_a_file_of_the_reference_offers_can_be_imported_from_ours(ours: Contract, theirs: Contract) -> None:
    missing = {
        f"{file}.{name}"
        for file, names in theirs["submodules"].items()
        for name in set(names["offered"]) - set(ours["submodules"][file]["importable"])
    }

    assert missing == set()


def test_models_have_the_same_fields_and_defaults(ours: Contract, theirs: Contract) -> None:
    expected = {
        name: {**model, "fields": {**model["fields"], **OUR_FIELDS.get(name, {})}}
        for name, model in theirs["models"].items()
    }

    assert {name: ours["models"].get(name) for name in expected} == expected


def test_content_records_take_the_same_arguments_in_the_same_order(ours: Contract, theirs: Contract) -> None:
    assert ours["records"] == theirs["records"]


def test_protocols_ask_for_the_same_members(ours: Contract, theirs: Contract) -> None:
    assert ours["protocols"] == {**theirs["protocols"], **OUR_PROTOCOLS}


@pytest.mark.parametrize("vocabulary", ["events", "capabilities"])
def test_the_vocabulary_is_the_same_word_for_word(vocabulary: str, ours: Contract, theirs: Contract) -> None:
    assert ours[vocabulary] == theirs[vocabulary]


def test_provider_errors_have_the_same_parents_attributes_and_texts(ours: Contract, theirs: Contract) -> None:
    assert ours["errors"] == theirs["errors"]
