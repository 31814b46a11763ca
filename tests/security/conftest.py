"""The machine of the attacks, made once and reset for each."""

from collections.abc import Iterator

import pytest
from lab import Lab, lab_in_namespaces
from sandboxes import place_outside_tmp


@pytest.fixture(scope="session")
def prepared_lab() -> Iterator[Lab]:
    with place_outside_tmp() as root:
        try:
            with lab_in_namespaces(root) as lab:
                lab.prepare()
                yield lab
        except LookupError as exc:
            pytest.skip(f"attacks run in namespaces of their own, and none can be made here: {exc}")


@pytest.fixture
def lab(prepared_lab: Lab) -> Lab:
    prepared_lab.reset()
    return prepared_lab
