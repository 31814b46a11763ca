"""Values that pydantic refuses are explained in plain words."""

from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from amplifierd.issues import in_words


class Values(BaseModel):
    whole: int = Field(default=1, ge=1, le=9)
    number: float = Field(default=1.0, gt=0, lt=10)
    switch: bool = True
    word: Literal["on", "off"] = "on"
    text: str = ""
    texts: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"whole": "few"}, "must be a whole number"),
        ({"whole": 1.5}, "must be a whole number"),
        ({"whole": 0}, "must be at least 1"),
        ({"whole": 10}, "must be at most 9"),
        ({"number": "much"}, "must be a number"),
        ({"number": 0}, "must be more than 0.0"),
        ({"number": 10}, "must be less than 10.0"),
        ({"switch": "maybe"}, "must be true or false"),
        ({"word": "up"}, "must be 'on' or 'off'"),
        ({"text": 3}, "must be text"),
        ({"texts": 3}, "must be a list"),
    ],
)
def test_a_wrong_value_is_told_without_the_words_of_the_library(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Values.model_validate(values)

    assert [in_words(problem) for problem in refused.value.errors()] == [words]
