"""The tools as they are mounted: order, schemas, and a configuration that says what it will not do."""

import logging
from typing import Any

import pytest
from amplifier_module_tool_web import WebFetchTool, WebSearchTool, mount

from amplifier_core.testing import MockCoordinator


async def test_the_search_is_mounted_before_the_fetch(web: Any) -> None:
    assert list(web.coordinator.get("tools")) == ["web_search", "web_fetch"]
    assert isinstance(web.coordinator.get("tools", "web_search"), WebSearchTool)
    assert isinstance(web.coordinator.get("tools", "web_fetch"), WebFetchTool)


async def test_an_interrupted_fetch_may_be_repeated_unless_it_saves(web: Any) -> None:
    fetch = web.coordinator.get("tools", "web_fetch")

    assert fetch.retry_of({"url": "https://example.org"}) == "safe"
    assert fetch.retry_of({"url": "https://example.org", "save_to_file": "page.html"}) == "never"


def without_descriptions(schema: dict[str, Any]) -> dict[str, Any]:
    properties = {
        name: {key: value for key, value in rule.items() if key != "description"}
        for name, rule in schema["properties"].items()
    }
    return {**schema, "properties": properties}


async def test_the_schemas_are_what_models_know(web: Any) -> None:
    tools = web.coordinator.get("tools")

    assert without_descriptions(tools["web_fetch"].input_schema) == {
        "type": "object",
        "properties": {
            "url": {"type": "string"},
            "save_to_file": {"type": "string"},
            "offset": {"type": "integer", "default": 0},
            "limit": {"type": "integer", "default": 204800},
        },
        "required": ["url"],
    }
    assert without_descriptions(tools["web_search"].input_schema) == {
        "type": "object",
        "properties": {"query": {"type": "string", "minLength": 1, "maxLength": 4096}},
        "required": ["query"],
    }


@pytest.mark.parametrize(
    "config",
    [
        {"search_timeout": 0},
        {"search_timeout": -1},
        {"search_timeout": "inf"},
        {"search_timeout": float("nan")},
        {"search_timeout": "soon"},
        {"max_results": 0},
        {"max_results": 51},
        {"max_results": True},
        {"search_engine": "altavista"},
    ],
    ids=str,
)
async def test_a_search_that_could_not_be_done_as_asked_fails_the_mount(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"tool-web: config key '{next(iter(config))}'"):
        await mount(MockCoordinator(), config)


async def test_numbers_may_be_given_as_text(caplog: pytest.LogCaptureFixture) -> None:
    await mount(
        MockCoordinator(), {"search_timeout": "3", "max_results": "50", "timeout": "2.5", "extract_text": "off"}
    )

    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("config", [{"api_key": ["secret"]}, {"api_key": "secret\nkey"}], ids=["list", "two lines"])
async def test_a_key_that_cannot_be_sent_is_not_logged(
    config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    await mount(MockCoordinator(), config)

    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "api_key" in warning
    assert "secret" not in caplog.text


async def test_mounting_makes_no_connection_and_cleaning_up_opens_nothing(internet: Any) -> None:
    cleanup = await mount(MockCoordinator(), {})
    await cleanup()
    await cleanup()

    assert (internet.looked_up, internet.connected) == ([], [])
