"""Guards that ask too often are switched off: ordinary days through the real command, and the questions in them."""

import sys

import pytest
from days import DAYS, Day, missing
from lab import Lab


@pytest.mark.parametrize("day", DAYS, ids=lambda day: day.name)
def test_a_person_is_asked_no_more_often_than_this_on_an_ordinary_day(day: Day, lab: Lab) -> None:
    if program := missing(day):
        pytest.skip(f"{program} is not where commands find it")
    day.prepare(lab)
    seen = lab.evidence()
    for step in day.steps:
        step(lab, seen)

    sys.stdout.write(f"=== {day.name}: {len(seen.questions)} questions, at most {day.most}\n{seen.report()}\n")
    assert [promise for promise, holds in day.promises.items() if not holds(seen)] == []
    assert len(seen.questions) <= day.most
