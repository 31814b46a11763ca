"""Which API a server is asked through, which fields it takes, and which models it has."""

import importlib
import json
import re
from importlib.resources import files
from typing import Any

import amplifier_module_provider_openai
import pytest
from openai_server import CHAT, MODELS, RESPONSES, OpenAIServer, failed
from vendor_server import Answer, json_answer, text_answer

from amplifier_core.llm_errors import InvalidRequestError, NotFoundError
from amplifier_core.message_models import ResponseFormatJson

ROWS = {
    "gpt-5-mini-2025-08-07": ("gpt-5-mini", 128_000, 64_000, None, True),
    "gpt-5.5-pro": ("gpt-5", 1_000_000, 128_000, None, True),
    "gpt-5.5-2026-04-23": ("gpt-5", 1_000_000, 128_000, None, True),
    "gpt-5.3-codex": ("gpt-5", 400_000, 128_000, None, True),
    "gpt-5.1-codex": ("gpt-5", 200_000, 128_000, "medium", True),
    "gpt-5.4": ("gpt-5", 1_050_000, 128_000, None, True),
    "o3-mini": ("o-series", 200_000, 100_000, "medium", False),
    "llama-3": ("unknown", 200_000, 128_000, None, True),
}


# --- which API


@pytest.mark.parametrize(
    "missing",
    [None, text_answer("Not Found", 404), failed(405), failed(501), json_answer({"detail": "Not Found"}, 404)],
    ids=["404", "text", "405", "501", "detail"],
)
async def test_a_server_with_chat_only_is_found_out_by_one_refusal(desks: Any, missing: Answer | None) -> None:
    with OpenAIServer(key=None, apis=[CHAT] if missing is None else [CHAT, RESPONSES]) as local:
        if missing is not None:
            local.script(RESPONSES, missing)
        desk = desks({"base_url": local.base_url, "api_key": ""}, at=local)

        first = await desk.ask()
        await desk.ask()

        assert first.text == "Hello"
        assert [request.endpoint for request in local.requests] == [RESPONSES, CHAT, CHAT]
        assert desk.payloads("provider:api_selected") == [
            {"provider": "openai", "base_url_host": "127.0.0.1", "api": "chat"}
        ]
        assert desk.payloads("provider:retry") == []
        assert [data["api"] for data in desk.payloads("llm:request")] == ["responses", "chat"]


async def test_a_server_with_responses_only_is_never_asked_for_chat(desks: Any) -> None:
    with OpenAIServer(apis=[RESPONSES]) as local:
        desk = desks({"base_url": local.base_url}, at=local)

        await desk.ask()
        local.script(RESPONSES, failed(404, None, "Not here."))
        with pytest.raises(NotFoundError):
            await desk.ask()

        assert {request.endpoint for request in local.requests} == {RESPONSES}


@pytest.mark.parametrize(
    "answer",
    [failed(404, "model_not_found"), json_answer({"error": "model 'x' not found"}, 404)],
    ids=["code", "words"],
)
async def test_a_missing_model_does_not_mean_that_the_api_is_missing(desks: Any, answer: Answer) -> None:
    desk = desks()
    desk.server.script(RESPONSES, answer)

    with pytest.raises(NotFoundError):
        await desk.ask()

    assert [request.endpoint for request in desk.server.requests] == [RESPONSES]


async def test_openai_itself_is_asked_through_responses_whatever_it_answers(server: OpenAIServer, desks: Any) -> None:
    openai = importlib.import_module("openai")
    client = openai.AsyncOpenAI(api_key=server.key, base_url=server.base_url, max_retries=0)
    desk = desks({"base_url": ""}, client=client)
    server.script(RESPONSES, failed(404, None, "Not Found"), failed(400, None, "Unknown parameter", param="store"))

    with pytest.raises(NotFoundError):
        await desk.ask()
    with pytest.raises(InvalidRequestError):
        await desk.ask()

    assert [request.endpoint for request in server.requests] == [RESPONSES] * 2


# --- which fields


@pytest.mark.parametrize(
    ("field", "config"),
    [
        ("stream_options", {}),
        ("parallel_tool_calls", {}),
        ("reasoning_effort", {"reasoning_effort": "low"}),
        ("seed", {"seed": 1}),
    ],
)
async def test_a_field_that_a_chat_server_refuses_is_left_out_from_then_on(desks: Any, field: str, config: Any) -> None:
    with OpenAIServer(refuses=[field]) as local:
        desk = desks({"api": "chat", "base_url": local.base_url, **config}, at=local)

        response = await desk.ask(tools=("echo",))
        await desk.ask(tools=("echo",))

        assert response.text == "Hello"
        assert [field in body for body in desk.bodies] == [True, False, False]
        assert desk.payloads("provider:retry") == []


@pytest.mark.parametrize("field", ["store", "include", "truncation", "reasoning", "text", "strict"])
async def test_a_field_that_another_server_refuses_in_responses_is_left_out(desks: Any, field: str) -> None:
    with OpenAIServer(refuses=[field]) as local:
        options = {"truncation": "auto", "reasoning_effort": "low", "text_verbosity": "low"}
        desk = desks({"api": "responses", "base_url": local.base_url, **options}, at=local)

        await desk.ask(tools=("echo",))
        await desk.ask(tools=("echo",))

        sent = [field in body or field in body["tools"][0] for body in desk.bodies]
        assert sent == [True, False, False]


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("response_format", {"response_format": ResponseFormatJson()}),
        ("tool_choice", {"tool_choice": "required", "tools": ("echo",)}),
    ],
)
async def test_what_is_lost_with_a_refused_field_is_reported_every_time(desks: Any, field: str, options: Any) -> None:
    with OpenAIServer(refuses=[field]) as local:
        desk = desks({"api": "chat", "base_url": local.base_url}, at=local)

        responses = [await desk.ask(**options) for _ in range(2)]

        assert [response.degradation.requested for response in responses] == [field] * 2


async def test_a_server_that_knows_the_older_name_of_the_cap_is_sent_that(server: OpenAIServer, desks: Any) -> None:
    openai = importlib.import_module("openai")
    server.refuses = {"max_completion_tokens"}
    client = openai.AsyncOpenAI(api_key=server.key, base_url=server.base_url, max_retries=0)
    desk = desks({"api": "chat", "base_url": ""}, client=client)

    await desk.ask()

    assert [(body.get("max_completion_tokens"), body.get("max_tokens")) for body in desk.bodies] == [
        (4096, None),
        (None, 4096),
    ]


@pytest.mark.parametrize(
    ("api", "field", "said"),
    [
        ("chat", "seed", "seed is not supported by this server"),
        ("chat", "seed", "This server has no seed."),
        ("responses", "strict", "strict mode is not available"),
        ("responses", "store", "store is not supported"),
        ("responses", "reasoning", "This model does not support reasoning."),
        ("responses", "reasoning", "Unsupported: reasoning"),
    ],
)
async def test_a_field_may_be_refused_in_any_words(desks: Any, api: str, field: str, said: str) -> None:
    desk = desks({"api": api, "seed": 1, "reasoning_effort": "low"})
    desk.server.script(CHAT if api == "chat" else RESPONSES, failed(400, None, said))

    await desk.ask(tools=("echo",))

    assert [f"'{field}'" in str(body) for body in desk.bodies] == [True, False]


async def test_a_word_in_an_error_is_not_taken_for_the_name_of_a_field(desks: Any) -> None:
    desk = desks({"api": "responses", "text_verbosity": "low"})
    desk.server.script(RESPONSES, failed(400, None, "The text is not English and the reasoning in it makes no sense."))

    with pytest.raises(InvalidRequestError):
        await desk.ask()

    assert len(desk.bodies) == 1


# --- which models


async def test_openais_models_are_listed_by_name_without_dated_and_other_ones(server: OpenAIServer, desks: Any) -> None:
    openai = importlib.import_module("openai")
    ids = ("gpt-5.5", "gpt-5.5-2026-04-23", "gpt-5.4-pro", "gpt-5-mini", "gpt-6-nano", "gpt-4o", "whisper-1")
    server.models = [{"id": model, "object": "model"} for model in ids]
    client = openai.AsyncOpenAI(api_key=server.key, base_url=server.base_url, max_retries=0)
    filtered, whole = desks({"base_url": ""}, client=client), desks({"base_url": "", "filtered": "no"}, client=client)

    models = await filtered.provider.list_models()

    assert [(model.id, model.display_name) for model in models] == [
        ("gpt-5.4-pro", "GPT 5.4 Pro"),
        ("gpt-5.5", "GPT 5.5"),
        ("gpt-5-mini", "GPT-5 mini"),
        ("gpt-6-nano", "GPT-6-nano"),
    ]
    assert [model.context_window for model in models] == [272_000, 1_000_000, 128_000, 200_000]
    assert models[2].capabilities == ["tools", "streaming", "json_mode", "vision", "fast"]
    assert models[0].defaults == {"max_tokens": 16384, "reasoning_effort": "none"}
    assert "gpt-5.5-2026-04-23" in [model.id for model in await whole.provider.list_models()]


async def test_another_servers_models_are_all_listed_with_the_window_it_reports(
    server: OpenAIServer, desks: Any
) -> None:
    server.models = [
        {"id": "vllm", "max_model_len": 4096},
        {"id": "llama", "meta": {"n_ctx_train": 8192}},
        {"id": "router", "context_length": 1024},
        {"id": "plain"},
    ]

    unknown = {model.id: model.context_window for model in await desks().provider.list_models()}
    known = await desks({"context_window": 777, "model_max_output_tokens": 99}).provider.list_models()

    assert unknown == {"llama": 8192, "plain": 0, "router": 1024, "vllm": 4096}
    assert {model.id: model.context_window for model in known}["plain"] == 777
    assert {model.max_output_tokens for model in known} == {99}
    assert known[0].capabilities == ["tools", "streaming", "json_mode", "local"]


async def test_listing_models_is_tried_again(desks: Any) -> None:
    desk = desks()
    desk.server.script(MODELS, failed(503))

    assert [model.id for model in await desk.provider.list_models()] == ["gpt-5.5"]
    assert len(desk.payloads("provider:retry")) == 1


async def test_the_provider_describes_itself_without_a_key(desks: Any) -> None:
    info = desks({"base_url": "", "api_key": ""}).provider.get_info()

    assert (info.id, info.display_name, info.credential_env_vars) == ("openai", "OpenAI", ["OPENAI_API_KEY"])
    assert info.capabilities == ["streaming", "tools", "reasoning", "batch", "json_mode", "thinking"]
    assert info.defaults == {
        "model": "gpt-5.5",
        "max_tokens": 16384,
        "temperature": None,
        "timeout": 600.0,
        "context_window": 1_000_000,
        "max_output_tokens": 128_000,
    }
    fields = {field.id: field for field in info.config_fields}
    assert list(fields) == [
        "api_key",
        "base_url",
        "reasoning_effort",
        "enable_long_context",
        "prompt_cache_key",
        "prompt_cache_retention",
        "enable_response_chaining",
    ]
    assert [field.default for field in fields.values()] == [
        None, "https://api.openai.com/v1", "none", "false", "", None, "false",
    ]  # fmt: skip
    assert (fields["api_key"].field_type, fields["base_url"].env_var) == ("secret", "OPENAI_BASE_URL")


@pytest.mark.parametrize(
    ("config", "window"),
    [
        ({}, 272_000),
        ({"enable_long_context": True}, 1_050_000),
        ({"enable_long_context": True, "context_window": 5}, 5),
    ],
)
def test_the_window_ends_where_tokens_get_dearer_unless_that_is_wanted(
    desks: Any, config: dict[str, Any], window: int
) -> None:
    info = desks({"model": "gpt-5.4", **config}).provider.get_info()

    assert info.defaults["context_window"] == window


@pytest.mark.parametrize(("model", "facts"), ROWS.items(), ids=list(ROWS))
async def test_every_row_of_the_model_table_is_reached(
    server: OpenAIServer, desks: Any, model: str, facts: tuple[Any, ...]
) -> None:
    family, window, max_output, default_effort, has_vision = facts
    desk = desks({"api": "responses", "default_model": model, "enable_long_context": True})

    defaults = desk.provider.get_info().defaults
    image = {"type": "image", "source": {"type": "url", "url": "https://example.test/a.png"}}
    response = await desk.ask({"role": "user", "content": [image]})

    assert (defaults["context_window"], defaults["max_output_tokens"]) == (window, max_output)
    assert desk.bodies[0].get("reasoning") == ({"summary": "auto"} if default_effort else None)
    assert (response.degradation is None) is has_vision
    row = next(row for row in rows() if re.search(row["match"], model))
    assert row["family"] == family
    assert {next(row["match"] for row in rows() if re.search(row["match"], name)) for name in ROWS} == {
        row["match"] for row in rows()
    }


def rows() -> list[dict[str, Any]]:
    text = (files(amplifier_module_provider_openai) / "models.json").read_text(encoding="utf-8")
    listed: list[dict[str, Any]] = json.loads(text)["rows"]
    return listed


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("gpt-5", 200_000),
        ("gpt-5.2-pro", 200_000),
        ("gpt-5-2025-08-07", 200_000),
        ("gpt-5.10", 1_050_000),
        ("gpt-5.6", 1_050_000),
        ("gpt-5x", 1_050_000),
        ("openai/GPT-5.5", 1_000_000),
    ],
)
def test_models_are_told_apart_by_their_version(desks: Any, model: str, window: int) -> None:
    info = desks({"model": model, "enable_long_context": True}).provider.get_info()

    assert info.defaults["context_window"] == window


def test_the_model_table_keeps_its_form() -> None:
    types = {
        "match": str,
        "family": str,
        "context_window": int,
        "max_output_tokens": int,
        "supports_reasoning": bool,
        "default_reasoning_effort": str | None,
        "reasoning_efforts": list | None,
        "supports_vision": bool,
        "supports_streaming": bool,
        "capability_tags": list,
        "long_context_pricing_threshold": int | None,
        "supports_in_memory_retention": bool,
        "supports_24h_retention": bool,
    }

    for row in rows():
        assert set(row) == set(types)
        assert [name for name, kind in types.items() if not isinstance(row[name], kind)] == []
    assert rows()[-1]["match"] == ""
