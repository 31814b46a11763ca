"""What is known about models, from the module's own table and from the vendor's list."""

import json
import re
from importlib.resources import files
from typing import Any

import amplifier_module_provider_anthropic
import pytest
from amplifier_module_provider_anthropic import AnthropicProvider
from amplifier_module_provider_anthropic.settings import facts_of
from anthropic_server import MODELS, model_entry

DATA = json.loads((files(amplifier_module_provider_anthropic) / "models.json").read_text(encoding="utf-8"))
LEVELS = ["low", "medium", "high", "xhigh", "max"]
FOUR = ["low", "medium", "high", "max"]

TABLE = [  # id, max out, 1M, thinking, types, levels, sampling, display, budget, cacheable
    ("claude-fable-5", 128000, True, "implicit", [], LEVELS, False, False, None, 512),
    ("claude-mythos-5", 128000, True, "implicit", [], LEVELS, False, False, None, 512),
    ("claude-mythos-preview", 128000, True, "implicit", [], FOUR, False, False, None, 2048),
    ("claude-opus-5-5", 128000, True, "always", ["adaptive"], LEVELS, False, True, 64000, 512),
    ("claude-opus-6", 128000, True, "always", ["adaptive"], LEVELS, False, True, 64000, 512),
    ("claude-opus-latest", 128000, True, "always", ["adaptive"], LEVELS, False, True, 64000, 512),
    ("claude-opus-5", 128000, True, "optional", ["adaptive"], LEVELS, False, True, 64000, 512),
    ("claude-opus-5-20260701", 128000, True, "optional", ["adaptive"], LEVELS, False, True, 64000, 512),
    ("claude-opus-4-8", 128000, True, "optional", ["adaptive"], LEVELS, False, True, 64000, 1024),
    ("claude-opus-4-7", 128000, True, "optional", ["adaptive"], LEVELS, False, True, 64000, 2048),
    ("claude-opus-4-6", 128000, True, "optional", ["adaptive", "enabled"], FOUR, True, False, 64000, 4096),
    ("claude-opus-4-5-20251101", 64000, False, "optional", ["enabled"], LEVELS[:3], True, False, 32000, 4096),
    ("claude-opus-4-1-20250805", 64000, False, "optional", ["enabled"], [], True, False, 32000, 4096),
    ("claude-opus-4-20250514", 64000, False, "optional", ["enabled"], [], True, False, 32000, 4096),
    ("claude-3-opus-20240229", 64000, False, "optional", ["enabled"], [], True, False, 32000, 4096),
    ("claude-sonnet-5", 128000, True, "optional", ["adaptive"], LEVELS, False, True, 32000, 1024),
    ("Claude-Sonnet-6-1", 128000, True, "optional", ["adaptive"], LEVELS, False, True, 32000, 1024),
    ("something-else", 128000, True, "optional", ["adaptive"], LEVELS, False, True, 32000, 1024),
    ("claude-sonnet-4-6", 128000, True, "optional", ["adaptive", "enabled"], FOUR, True, False, 32000, 1024),
    ("claude-sonnet-4-5-20250929", 64000, False, "optional", ["enabled"], [], True, False, 32000, 1024),
    ("claude-3-7-sonnet-latest", 64000, False, "optional", ["enabled"], [], True, False, 32000, 1024),
    ("claude-haiku-4-5-20251001", 64000, False, "optional", ["enabled"], [], True, False, 32000, 4096),
    ("claude-haiku-5", 64000, False, "optional", ["enabled"], [], True, False, 32000, 4096),
    ("claude-haiku-3-5", 64000, False, "none", [], [], True, False, None, 4096),
    ("claude-3-5-haiku-latest", 64000, False, "none", [], [], True, False, None, 4096),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_a_model_is_described_by_its_row(row: tuple[Any, ...]) -> None:
    facts = facts_of(row[0])

    assert (
        *(facts.max_output_tokens, facts.has_1m_context, facts.thinking, list(facts.thinking_types)),
        *(list(facts.effort_levels), facts.has_sampling, facts.has_display, facts.default_budget_tokens),
        facts.min_cacheable_tokens,
    ) == row[1:]


def test_every_row_of_the_file_is_reached_by_one_id_of_the_table() -> None:
    def row_of(model: str) -> int:
        return next(n for n, row in enumerate(DATA["rows"]) if re.search(row["match"], model.lower()))

    assert {row_of(row[0]) for row in TABLE} == set(range(len(DATA["rows"])))


def test_the_file_has_the_form_that_the_module_reads() -> None:
    assert (DATA["format_version"], DATA["default_model"]) == (1, "claude-sonnet-5")
    assert DATA["rows"][-1]["match"] == ""
    fields = {
        "match": str,
        "max_output_tokens": int,
        "has_1m_context": bool,
        "thinking": str,
        "thinking_types": list,
        "effort_levels": list,
        "has_sampling": bool,
        "has_display": bool,
        "default_budget_tokens": int | None,
        "min_cacheable_tokens": int,
        "has_forced_tool_choice": bool,
    }
    for row in DATA["rows"]:
        assert set(row) == set(fields)
        assert all(isinstance(row[name], kind) for name, kind in fields.items())
        assert row["thinking"] in ("none", "optional", "always", "implicit")
        assert set(row["thinking_types"]) <= {"adaptive", "enabled"}
        assert set(row["effort_levels"]) <= set(LEVELS)
    assert DATA["native_tool_betas"] == {
        "computer_20241022": "computer-use-2024-10-22",
        "computer_20250124": "computer-use-2025-01-24",
        "computer_20251124": "computer-use-2025-11-24",
    }


def test_the_provider_describes_itself_without_a_key() -> None:
    info = AnthropicProvider().get_info()

    assert (info.id, info.display_name, info.credential_env_vars) == ("anthropic", "Anthropic", ["ANTHROPIC_API_KEY"])
    assert info.capabilities == ["tools", "thinking", "streaming", "json_mode", "vision"]
    assert info.defaults == {
        "model": "claude-sonnet-5",
        "max_tokens": 4096,
        "temperature": 0.7,
        "timeout": 600.0,
        "context_window": 200000,
        "max_output_tokens": 128000,
    }
    assert [(field.id, field.field_type, field.required, field.default) for field in info.config_fields] == [
        ("api_key", "secret", True, None),
        ("base_url", "text", False, "https://api.anthropic.com"),
        ("enable_1m_context", "boolean", True, "false"),
        ("reasoning_effort", "choice", False, None),
        ("cache_stable_region_ttl_1h", "boolean", False, None),
    ]
    assert info.config_fields[2].show_when == {"default_model": "not_contains:haiku"}
    assert info.config_fields[3].show_when == {"default_model": "not_contains:haiku-3"}
    assert info.config_fields[3].choices == LEVELS


@pytest.mark.parametrize(
    ("model", "window"), [("claude-sonnet-5", 1_000_000), ("claude-haiku-4-5", 200_000), ("claude-opus-4-5", 200_000)]
)
def test_the_long_window_is_advertised_where_the_model_has_one(model: str, window: int) -> None:
    info = AnthropicProvider(config={"default_model": model, "enable_1m_context": "yes"}).get_info()

    assert info.defaults["context_window"] == window


async def test_the_list_follows_its_pages_and_keeps_the_latest_of_each_family(desk: Any) -> None:
    one, all_of_them = desk(), desk(filtered=False)
    one.server.models = [
        model_entry(model, name)
        for model, name in [
            ("claude-opus-4-8", "Claude Opus 4.8"),
            ("claude-opus-5", "claude opus 5"),
            ("claude-haiku-4-5", "Claude Haiku 4.5"),
            ("claude-sonnet-5", "Claude Sonnet 5"),
            ("claude-sonnet-4-6", "Claude Sonnet 4.6"),
        ]
    ]
    one.server.page_size = 2

    filtered, every = await one.provider.list_models(), await all_of_them.provider.list_models()

    assert [model.id for model in filtered] == ["claude-haiku-4-5", "claude-opus-5", "claude-sonnet-5"]
    assert len(every) == 5
    assert [asked.query.get("after_id") for asked in one.server.asked(MODELS)[:3]] == [
        None,
        "claude-opus-5",
        "claude-sonnet-5",
    ]
    assert one.server.asked(MODELS)[0].query["limit"] == "100"
    haiku = filtered[0]
    assert haiku.capabilities == ["tools", "streaming", "json_mode", "fast", "vision", "thinking"]
    assert haiku.defaults == {"temperature": 0.7, "max_tokens": 64000}
    assert (haiku.pricing.input_per_million, haiku.pricing.output_per_million) == (1.0, 5.0)


def capabilities(thinking: dict[str, Any], **effort: Any) -> dict[str, Any]:
    return {"thinking": thinking, "effort": effort}


async def test_what_the_vendor_says_about_a_model_wins_and_holds_for_later_calls(desk: Any) -> None:
    one = desk(filtered=False)
    yes, no = {"supported": True}, {"supported": False}
    adaptive = {**yes, "types": {"adaptive": yes, "enabled": no}}
    one.server.models = [
        model_entry(
            "claude-haiku-4-5", "Haiku", max_input_tokens=300_000, max_tokens=9000, capabilities=capabilities(adaptive)
        ),
        model_entry("claude-opus-4-6", "Opus", capabilities=capabilities(no)),
        model_entry("claude-sonnet-5", "Sonnet", capabilities=capabilities(yes, **yes, low=yes, xhigh=no)),
    ]

    haiku, opus, _ = await one.provider.list_models()
    bodies = [
        await one.body("Hi", model=model, reasoning_effort="xhigh")
        for model in ("claude-haiku-4-5", "claude-opus-4-6", "claude-sonnet-5")
    ]

    assert (haiku.context_window, haiku.max_output_tokens) == (300_000, 9000)
    assert "thinking" not in opus.capabilities
    assert [body.get("thinking", {}).get("type") for body in bodies] == ["adaptive", None, "adaptive"]
    assert ["output_config" in body for body in bodies] == [False, False, False]
    assert bodies[0]["max_tokens"] == 9000


async def test_a_call_asks_for_nothing_but_its_answer(desk: Any) -> None:
    one = desk()

    await one.ask("Hi", model="claude-brand-new")

    assert [asked.endpoint for asked in one.server.requests] == ["POST /v1/messages"]
