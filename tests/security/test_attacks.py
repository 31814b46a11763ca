"""Every attack of the corpus, through the real command, fails."""

import sys

import pytest
from attacks import ATTACKS
from attacks_on_files import ATTACKS_ON_FILES
from fetched import FETCHED
from lab import Lab
from vocabulary import Attack


@pytest.mark.parametrize("attack", [*ATTACKS, *ATTACKS_ON_FILES, *FETCHED], ids=lambda attack: attack.name)
def test_an_attack_through_the_command_fails(attack: Attack, lab: Lab) -> None:
    attack.prepare(lab)
    seen = lab.evidence()
    for step in attack.steps:
        step(lab, seen)

    sys.stdout.write(f"=== {attack.name}: {attack.story}\n{seen.report()}\n")
    assert [promise for promise, holds in attack.promises.items() if not holds(seen)] == []
