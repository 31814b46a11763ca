"""Which provider and model a delegated session uses."""

import copy
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_core.testing import MockCoordinator
from amplifier_foundation import (
    ProviderPreference,
    apply_provider_preferences,
    apply_provider_preferences_with_resolution,
    is_glob_pattern,
    resolve_model_pattern,
)
from amplifier_foundation.spawn_utils import PROTECTED_CONFIG_KEYS


class Vendor:
    name = "vendor"

    def __init__(self, *models: Any) -> None:
        self.models = models

    async def list_models(self) -> list[Any]:
        return list(self.models)


class BrokenVendor(Vendor):
    async def list_models(self) -> list[Any]:
        raise ConnectionError("offline")


def coordinator(providers: dict[str, Any], config: dict[str, Any] | None = None) -> Any:
    mock = MockCoordinator()
    return SimpleNamespace(
        get=lambda point: providers if point == "providers" else mock.get(point), config=config or {}
    )


@pytest.fixture
def plan() -> dict[str, Any]:
    return {
        "session": {"orchestrator": "loop-basic"},
        "providers": [
            {"module": "provider-anthropic", "config": {"api_key": "k", "priority": 5}},
            {"module": "provider-openai", "id": "second", "config": {"priority": 1}},
            {"module": "provider-openai", "id": "third"},
        ],
    }


@pytest.mark.parametrize("name", ["anthropic", "provider-anthropic"])
def test_the_preferred_provider_comes_first_with_the_preferred_model(plan: dict[str, Any], name: str) -> None:
    before = copy.deepcopy(plan)

    preferred = apply_provider_preferences(
        plan, [ProviderPreference(name, "m", {"temperature": 1, "api_key": "other"})]
    )

    assert preferred["providers"][0]["config"] == {
        "api_key": "k",
        "priority": 0,
        "default_model": "m",
        "temperature": 1,
    }
    assert preferred["session"] == plan["session"]
    assert plan == before
    for entry in preferred["providers"]:
        entry["config"]["changed"] = True
    assert plan == before


def test_a_preference_never_changes_where_and_as_whom_a_provider_connects(plan: dict[str, Any]) -> None:
    preference = ProviderPreference("anthropic", "m", dict.fromkeys(PROTECTED_CONFIG_KEYS, "stolen"))

    assert "stolen" not in str(apply_provider_preferences(plan, [preference]))


def test_an_instance_is_preferred_by_its_id_and_a_type_by_priority(plan: dict[str, Any]) -> None:
    by_id = apply_provider_preferences(plan, [ProviderPreference("third", "m")])
    by_type = apply_provider_preferences(plan, [ProviderPreference("openai", "m")])

    assert by_id["providers"][2]["config"] == {"priority": 0, "default_model": "m"}
    assert by_type["providers"][1]["config"] == {"priority": 0, "default_model": "m"}


async def test_an_instance_that_only_the_kernel_has_a_name_for_is_preferred_by_it() -> None:
    plan = {"providers": [{"module": "provider-a", "instance_id": name} for name in ("slow", "fast")]}
    place = coordinator({"slow": Vendor("m-1"), "fast": Vendor("m-2")}, plan)

    by_name = await apply_provider_preferences_with_resolution(plan, [ProviderPreference("fast", "m-*")], place)
    by_type = await apply_provider_preferences_with_resolution(plan, [ProviderPreference("a", "m-*")], place)

    assert [entry["config"].get("default_model") for entry in by_name["providers"]] == [None, "m-2"]
    assert [entry["config"].get("default_model") for entry in by_type["providers"]] == ["m-1", None]


def test_the_first_preference_that_is_there_wins(plan: dict[str, Any]) -> None:
    preferred = apply_provider_preferences(plan, [ProviderPreference("gemini", "a"), ProviderPreference("openai", "b")])

    assert [entry.get("config", {}).get("default_model") for entry in preferred["providers"]] == [None, "b", None]


@pytest.mark.parametrize("preferences", [None, []])
def test_without_preferences_the_plan_is_returned_itself(plan: dict[str, Any], preferences: Any) -> None:
    assert apply_provider_preferences(plan, preferences) is plan


def test_without_a_match_the_plan_is_returned_with_a_warning(
    plan: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert apply_provider_preferences(plan, [ProviderPreference("gemini", "m")]) is plan
        assert apply_provider_preferences({}, [ProviderPreference("gemini", "m")]) == {}

    assert caplog.text.count("gemini") == 2


def test_a_config_of_nothing_counts_as_empty() -> None:
    plan = {"providers": [{"module": "provider-a", "config": None}]}

    assert apply_provider_preferences(plan, [ProviderPreference("a", "m")])["providers"][0]["config"] == {
        "priority": 0,
        "default_model": "m",
    }


@pytest.mark.parametrize(("hint", "expected"), [("a*", True), ("a?", True), ("a[bc]", True), ("gpt-5.4", False)])
def test_a_pattern_is_known_by_its_signs(hint: str, expected: bool) -> None:
    assert is_glob_pattern(hint) is expected


@pytest.mark.parametrize("name", ["vendor", "provider-vendor"])
async def test_a_pattern_stands_for_the_last_of_the_models_that_match(name: str) -> None:
    models = Vendor("Claude-2", SimpleNamespace(id="claude-10"), "gpt")

    result = await resolve_model_pattern("claude-*", name, coordinator({"vendor": models}))

    assert (result.resolved_model, result.pattern) == ("claude-10", "claude-*")
    assert result.available_models == ["Claude-2", "claude-10", "gpt"]
    assert result.matched_models == ["claude-10", "Claude-2"]


async def test_a_name_stands_for_itself_and_a_pattern_without_provider_too() -> None:
    assert (await resolve_model_pattern("m", "vendor", None)).resolved_model == "m"
    assert await resolve_model_pattern("m*", None, None) == type(await resolve_model_pattern("m", None, None))(
        "m*", "m*"
    )


@pytest.mark.parametrize(
    "place",
    [None, coordinator({}), coordinator({"vendor": BrokenVendor()}), coordinator({"vendor": Vendor("x")})],
    ids=["nowhere", "no providers", "offline", "no match"],
)
async def test_a_pattern_that_matches_nothing_is_nothing(place: Any) -> None:
    assert (await resolve_model_pattern("m*", "vendor", place)).resolved_model is None


async def test_an_instance_is_found_through_the_plan() -> None:
    place = coordinator(
        {"one": Vendor("m-1"), "two": Vendor("m-2")},
        {
            "providers": [
                {"module": "provider-vendor", "id": "one", "config": {"priority": 7}},
                {"module": "provider-vendor", "id": "two", "config": {"priority": 3}},
            ]
        },
    )

    assert (await resolve_model_pattern("m-*", "vendor", place)).resolved_model == "m-2"


async def test_a_pattern_never_reaches_the_plan(plan: dict[str, Any]) -> None:
    place = coordinator({"anthropic": Vendor("claude-1"), "openai": Vendor("gpt-5", "gpt-4")})
    preferences = [ProviderPreference("anthropic", "nothing-*"), ProviderPreference("openai", "gpt-*")]

    preferred = await apply_provider_preferences_with_resolution(plan, preferences, place)
    unchanged = await apply_provider_preferences_with_resolution(plan, preferences[:1], place)

    assert preferred["providers"][1]["config"]["default_model"] == "gpt-5"
    assert unchanged is plan


def test_a_preference_is_written_and_read_as_a_mapping() -> None:
    preference = ProviderPreference("a", "m", {"x": 1})

    assert ProviderPreference.from_dict(preference.to_dict()) == preference
    assert ProviderPreference("a", "m").to_dict() == {"provider": "a", "model": "m"}


@pytest.mark.parametrize("missing", ["provider", "model"])
def test_a_preference_without_its_keys_is_refused(missing: str) -> None:
    data = {"provider": "a", "model": "m"}
    del data[missing]

    with pytest.raises(ValueError, match=f"requires '{missing}' key"):
        ProviderPreference.from_dict(data)


def test_a_priority_of_nothing_counts_as_none() -> None:
    plan = {"providers": [{"module": "provider-a", "id": name, "config": {"priority": None}} for name in "xy"]}

    chosen = apply_provider_preferences(plan, [ProviderPreference("a", "m")])

    assert [entry["config"].get("default_model") for entry in chosen["providers"]] == ["m", None]


def test_what_is_not_an_entry_stays_as_it_is() -> None:
    plan = {"providers": ["provider-a", None, {"config": {}}, {"module": "provider-a", "config": "odd"}]}

    chosen = apply_provider_preferences(plan, [ProviderPreference("a", "m")])

    preferred = {"module": "provider-a", "config": {"priority": 0, "default_model": "m"}}
    assert chosen == {"providers": ["provider-a", None, {"config": {}}, preferred]}


@pytest.mark.parametrize("providers", [None, {"module": "provider-a"}, "provider-a"])
def test_providers_that_are_not_a_list_are_none(providers: Any, caplog: pytest.LogCaptureFixture) -> None:
    plan = {"providers": providers}

    assert apply_provider_preferences(plan, [ProviderPreference("a", "m")]) is plan
    assert "None of the preferred providers" in caplog.text
