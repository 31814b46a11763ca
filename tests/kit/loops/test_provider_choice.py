"""Choosing among providers, and what is known of their models."""

from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_kit.loops.announcements import by_preference, model_of, priority_of


def names(*arguments: Any, **options: Any) -> list[str]:
    return [name for name, _ in by_preference(*arguments, **options)]


def test_the_preferred_one_comes_first_and_the_rest_by_priority() -> None:
    providers = {name: SimpleNamespace(priority=number) for name, number in (("a", 3), ("b", 2), ("c", 1))}

    assert names(providers, None) == ["c", "b", "a"]
    assert names(providers, "b") == ["b", "c", "a"]


def test_without_ranking_they_stay_as_they_were_mounted() -> None:
    providers = {name: SimpleNamespace(priority=number) for name, number in (("a", 3), ("b", 2), ("c", 1))}

    assert names(providers, None, rank=False) == ["a", "b", "c"]
    assert names(providers, "provider-b", rank=False) == ["b", "a", "c"]


def test_there_may_be_none() -> None:
    assert names({}, "a") == []


@pytest.mark.parametrize(
    ("provider", "priority"),
    [
        (SimpleNamespace(priority=1.5, config={"priority": 2}), 1.5),
        (SimpleNamespace(priority=None, config={"priority": 2}), 2),
        (SimpleNamespace(config={"priority": "2"}), 100),
        (SimpleNamespace(config=None), 100),
        (object(), 100),
    ],
)
def test_a_priority_is_a_number(provider: Any, priority: float) -> None:
    assert priority_of(provider) == priority


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        (SimpleNamespace(default_model="a", model="b"), "a"),
        (SimpleNamespace(model="b"), "b"),
        (SimpleNamespace(config={"default_model": "c", "model": "d"}), "c"),
        (SimpleNamespace(model=7, config={"model": "d"}), "d"),
        (SimpleNamespace(model=""), None),
        (object(), None),
    ],
)
def test_the_best_known_model_is_told(provider: Any, model: str | None) -> None:
    assert model_of(provider) == model
