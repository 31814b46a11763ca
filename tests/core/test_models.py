"""The values modules, applications and the kernel hand to each other."""

import base64
import copy
import json
import math
import pickle
from datetime import datetime
from decimal import Decimal
from typing import Any
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from amplifier_core.message_models import ImageBlock, TextBlock, ThinkingBlock
from amplifier_core.models import (
    ConfigField,
    ContextInjection,
    HookResult,
    ModelInfo,
    ModuleInfo,
    Pricing,
    ProviderInfo,
    SessionStatus,
    ToolResult,
)

PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
IMAGE = {"type": "image", "source": PNG}
TEXT = {"type": "text", "text": "hi"}
MODULE = dict.fromkeys(["id", "name", "version", "mount_point", "description"], "x")

MODELS: list[tuple[type[BaseModel], dict[str, Any], dict[str, Any]]] = [
    (
        ContextInjection,
        {"content": "c"},
        {
            "role": "system",
            "ephemeral": False,
            "append_to_last_tool_result": False,
            "hook_name": "unknown",
            "event": "",
        },
    ),
    (
        HookResult,
        {},
        {
            "action": "continue",
            "data": None,
            "reason": None,
            "context_injection": None,
            "context_injection_role": "system",
            "ephemeral": False,
            "approval_prompt": None,
            "approval_options": None,
            "approval_timeout": 300.0,
            "approval_default": "deny",
            "suppress_output": False,
            "user_message": None,
            "user_message_level": "info",
            "user_message_source": None,
            "append_to_last_tool_result": False,
            "context_injections": [],
        },
    ),
    (ToolResult, {}, {"success": True, "output": None, "error": None}),
    (
        Pricing,
        {"input_per_million": 1.0, "output_per_million": 2.0},
        {"cache_read_per_million": None, "cache_write_per_million": None, "currency": "USD"},
    ),
    (
        ModelInfo,
        {"id": "m", "display_name": "M", "context_window": 10, "max_output_tokens": 5},
        {"capabilities": [], "defaults": {}, "pricing": None},
    ),
    (
        ConfigField,
        {"id": "key", "display_name": "Key", "prompt": "Key?"},
        {
            "field_type": "text",
            "env_var": None,
            "choices": None,
            "required": True,
            "default": None,
            "show_when": None,
            "requires_model": False,
        },
    ),
    (
        ProviderInfo,
        {"id": "p", "display_name": "P"},
        {"credential_env_vars": [], "capabilities": [], "defaults": {}, "config_fields": []},
    ),
    (ModuleInfo, {**MODULE, "type": "tool"}, {"config_schema": None}),
    (
        SessionStatus,
        {"session_id": "s", "started_at": datetime(2026, 1, 2)},
        {
            "ended_at": None,
            "status": "running",
            "total_messages": 0,
            "tool_invocations": 0,
            "tool_successes": 0,
            "tool_failures": 0,
            "total_input_tokens": 0,
            "total_output_tokens": 0,
            "cost_usd": None,
            "last_activity": None,
            "last_error": None,
            "load_failures": [],
        },
    ),
]
CHOICES: list[tuple[type[BaseModel], dict[str, Any], str, list[str]]] = [
    (HookResult, {}, "action", ["continue", "deny", "modify", "inject_context", "ask_user"]),
    (HookResult, {}, "context_injection_role", ["system", "user", "assistant"]),
    (HookResult, {}, "approval_default", ["allow", "deny"]),
    (HookResult, {}, "user_message_level", ["info", "warning", "error"]),
    (ContextInjection, {"content": "c"}, "role", ["system", "user", "assistant"]),
    (
        ConfigField,
        {"id": "k", "display_name": "K", "prompt": "?"},
        "field_type",
        ["text", "secret", "choice", "boolean"],
    ),
    (ModuleInfo, MODULE, "type", ["orchestrator", "provider", "tool", "context", "hook", "resolver"]),
    (SessionStatus, {"session_id": "s"}, "status", ["running", "completed", "failed", "cancelled"]),
]
each_model = pytest.mark.parametrize(("model", "required", "defaults"), MODELS)


@each_model
def test_a_model_has_its_fields_and_defaults(
    model: type[BaseModel], required: dict[str, Any], defaults: dict[str, Any]
) -> None:
    assert model(**required).model_dump() == {**required, **defaults}


@each_model
def test_required_fields_must_be_given(
    model: type[BaseModel], required: dict[str, Any], defaults: dict[str, Any]
) -> None:
    for name in required.keys() - {"started_at"}:
        with pytest.raises(ValidationError, match=name):
            model(**{other: value for other, value in required.items() if other != name})


@each_model
def test_unknown_fields_are_ignored(model: type[BaseModel], required: dict[str, Any], defaults: dict[str, Any]) -> None:
    assert model(**required, cost_per_input_token=1).model_dump() == {**required, **defaults}


@each_model
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_models_survive_copying_and_pickling(
    model: type[BaseModel], required: dict[str, Any], defaults: dict[str, Any], duplicate: Any
) -> None:
    instance = model(**required)

    assert duplicate(instance) == instance


@each_model
def test_two_instances_share_no_default(
    model: type[BaseModel], required: dict[str, Any], defaults: dict[str, Any]
) -> None:
    first, second = model(**required), model(**required)

    for name, value in defaults.items():
        if isinstance(value, (list, dict)):
            assert getattr(first, name) is not getattr(second, name)


@pytest.mark.parametrize(("model", "required", "field", "choices"), CHOICES)
def test_a_choice_is_one_of_a_few_words(
    model: type[BaseModel], required: dict[str, Any], field: str, choices: list[str]
) -> None:
    for choice in choices:
        assert getattr(model(**required, **{field: choice}), field) == choice
    with pytest.raises(ValidationError):
        model(**required, **{field: "other"})


def test_the_data_of_a_hook_result_is_copied_at_the_top_only() -> None:
    value, data = object(), {"nested": [1]}
    data["object"] = value  # type: ignore[assignment]

    result = HookResult(data=data)

    assert result.data is not data
    assert result.data is not None
    assert result.data["nested"] is data["nested"]
    assert result.data["object"] is value


def test_injections_in_a_hook_result_are_kept_as_the_same_objects() -> None:
    injection = ContextInjection(content="c")

    assert HookResult(action="inject_context", context_injections=[injection]).context_injections[0] is injection


def test_a_currency_has_three_capital_letters() -> None:
    assert Pricing(input_per_million=1, output_per_million=1, currency="EUR").currency == "EUR"


@pytest.mark.parametrize("currency", ["usd", "US", "USDX", "", "U$D", "USD\n", "ÄÖÜ"])
def test_any_other_currency_is_refused(currency: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Pricing(input_per_million=1, output_per_million=1, currency=currency)

    assert f"currency must be a 3-letter ISO 4217 code, got {currency!r}" in str(refused.value)


def test_a_session_status_starts_now_and_dumps_what_is_set() -> None:
    before = datetime.now()

    status = SessionStatus(session_id="s", cost_usd=Decimal("0.10"), last_error={"message": "m"})

    assert before <= status.started_at <= datetime.now()
    assert status.to_dict() == {
        "session_id": "s",
        "started_at": status.started_at.isoformat(),
        "status": "running",
        "total_messages": 0,
        "tool_invocations": 0,
        "tool_successes": 0,
        "tool_failures": 0,
        "total_input_tokens": 0,
        "total_output_tokens": 0,
        "cost_usd": "0.10",
        "last_error": {"message": "m"},
        "load_failures": [],
    }


def test_the_cost_of_a_session_is_exact() -> None:
    with pytest.raises(ValidationError) as refused:
        SessionStatus(session_id="s", cost_usd=1.23)  # type: ignore[arg-type]

    expected = "cost_usd must be Decimal, not float. Use Decimal('1.23') — floats lose monetary precision."
    assert expected in str(refused.value)


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_the_cost_of_a_session_keeps_its_precision(cost: Decimal) -> None:
    status = SessionStatus(session_id="s", cost_usd=cost)

    twin = SessionStatus.model_validate(status.to_dict())

    assert twin.cost_usd is not None
    assert twin.cost_usd.as_tuple() == cost.as_tuple()


def test_a_status_is_not_validated_when_it_is_changed() -> None:
    status = SessionStatus(session_id="s")

    status.status = "odd"  # type: ignore[assignment]

    assert status.status == "odd"  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("is_error", [True, False])
def test_a_tool_result_may_be_given_as_an_error(is_error: bool) -> None:
    given_data: dict[str, Any] = {"is_error": is_error, "output": "o"}

    for result in (ToolResult(**given_data), ToolResult.model_validate(given_data)):
        assert result.model_dump() == {"success": not is_error, "output": "o", "error": None}
    assert given_data == {"is_error": is_error, "output": "o"}
    assert "is_error" not in ToolResult.model_fields


def test_an_explicit_success_outranks_is_error() -> None:
    assert ToolResult(is_error=True, success=True).success is True  # type: ignore[call-arg]


@pytest.mark.parametrize("make", [ToolResult, ToolResult.model_construct])
@pytest.mark.parametrize("message", ["broken", ["a", "list"], 7])
def test_a_failure_without_output_speaks_through_its_message(make: Any, message: Any) -> None:
    assert make(success=False, error={"message": message}).output == message


@pytest.mark.parametrize("make", [ToolResult, ToolResult.model_construct])
@pytest.mark.parametrize(
    ("fields", "output"),
    [
        ({"success": True, "error": {"message": "m"}}, None),
        ({"success": False, "error": {"message": "m"}, "output": ""}, ""),
        ({"success": False, "error": {"message": "m"}, "output": {"a": 1}}, {"a": 1}),
        ({"success": False, "error": {"message": ""}}, None),
        ({"success": False, "error": {"code": 1}}, None),
        ({"success": False, "error": {}}, None),
        ({"success": False}, None),
    ],
)
def test_any_other_output_stays_as_it_is(make: Any, fields: dict[str, Any], output: Any) -> None:
    assert make(**fields).output == output


def test_an_assignment_to_a_tool_result_is_validated() -> None:
    result = ToolResult()

    for name, value in {"success": "perhaps", "error": "text", "content": "text", "is_error": True}.items():
        with pytest.raises(ValidationError):
            setattr(result, name, value)
    result.output = "fine"

    assert result == ToolResult(output="fine")


def test_errors_about_a_tool_result_do_not_show_its_values() -> None:
    with pytest.raises(ValidationError) as refused:
        ToolResult(success="s3cret", error="s3cret", content=[{"type": "text", "text": ["s3cret"]}])  # type: ignore[arg-type, list-item]

    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("empty", [None, []])
def test_no_content_is_none_and_left_out_of_every_dump(empty: Any) -> None:
    result = ToolResult(output="o", content=empty)

    assert result.content is None
    for dump in (result.model_dump(), result.model_dump(mode="json"), json.loads(result.model_dump_json())):
        assert dump == {"success": True, "output": "o", "error": None}


@pytest.mark.parametrize(
    "content",
    [
        [TEXT, IMAGE],
        [TextBlock(text="hi"), ImageBlock(source=PNG)],
        [
            {**TEXT, "visibility": "user", "cache_control": {}},
            {**IMAGE, "alt": "x", "source": {**PNG, "detail": "high"}},
        ],
        [TextBlock(text="hi", visibility="user", extra=1), ImageBlock(source={**PNG, "detail": "high"})],  # type: ignore[call-arg]
    ],
)
def test_content_is_reduced_to_what_a_model_needs(content: Any) -> None:
    constructed, assigned = ToolResult(content=content), ToolResult()
    assigned.content = content

    for result in (constructed, assigned):
        assert result.content == [TextBlock(text="hi"), ImageBlock(source=PNG)]
        for dump in (result.model_dump(), result.model_dump(mode="json"), json.loads(result.model_dump_json())):
            assert dump == {"success": True, "output": None, "error": None, "content": [TEXT, IMAGE]}
    assert ToolResult.model_validate(constructed.model_dump()) == constructed


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("text", "invalid tool result content"),
        ({"type": "text", "text": "hi"}, "invalid tool result content"),
        ((TEXT,), "invalid tool result content"),
        (["text"], "invalid tool result content"),
        ([None], "invalid tool result content"),
        ([{"type": "text"}], "invalid tool result content"),
        ([{"type": "text", "text": 5}], "invalid tool result content"),
        ([{"text": "hi"}], "invalid tool result content"),
        ([TEXT, {"type": "video"}], "invalid tool result content"),
        ([ThinkingBlock(thinking="hm")], "invalid tool result content"),
        ([{"type": "image"}], "invalid tool result image source"),
        ([{"type": "image", "source": "x"}], "invalid tool result image source"),
        ([{"type": "image", "source": {"type": "url", "url": "x"}}], "invalid tool result image source"),
        ([ImageBlock(source={"type": "file", "file_id": "x"})], "invalid tool result image source"),
        ([{"type": "image", "source": {**PNG, "media_type": "Image/png"}}], "invalid tool result image media type"),
        ([{"type": "image", "source": {**PNG, "media_type": "image/"}}], "invalid tool result image media type"),
        ([{"type": "image", "source": {**PNG, "media_type": "image/png\n"}}], "invalid tool result image media type"),
        ([{"type": "image", "source": {"type": "base64", "data": "AAAA"}}], "invalid tool result image media type"),
        ([{"type": "image", "source": {**PNG, "data": None}}], "invalid tool result image data"),
        ([{"type": "image", "source": {**PNG, "data": b"AAAA"}}], "invalid tool result image data"),
    ],
)
def test_content_that_a_model_cannot_take_is_refused(content: Any, complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        ToolResult(content=content)
    result = ToolResult()
    with pytest.raises(ValidationError, match=complaint):
        result.content = content


@pytest.mark.parametrize(
    "data",
    [
        "",
        "A",
        "AA",
        "AAA",
        "AA=",
        "AA==AA==",
        "AAA A",
        "AAAA\n",
        " AAAA",
        "AB==",
        "AAB=",
        "A-_A",
        "====",
        "äAAA",
        "AAAA=",
    ],
)
def test_an_image_that_is_not_canonical_base64_is_refused(data: str) -> None:
    with pytest.raises(ValidationError, match="invalid tool result image data"):
        ToolResult(content=[{"type": "image", "source": {**PNG, "data": data}}])  # type: ignore[list-item]


@given(st.binary(min_size=1))
def test_every_image_in_base64_is_accepted(image: bytes) -> None:
    source = {**PNG, "data": base64.b64encode(image).decode()}

    result = ToolResult(content=[{"type": "image", "source": source}])  # type: ignore[list-item]

    assert result.model_dump()["content"] == [{"type": "image", "source": source}]


def test_content_is_checked_again_when_it_is_dumped() -> None:
    result = ToolResult(content=[TextBlock(text="hi", visibility="user")])
    assert result.content is not None
    result.content[0].visibility = "user"
    assert result.model_dump()["content"] == [TEXT]

    result.content.append(ThinkingBlock(thinking="hm"))  # type: ignore[arg-type]

    with pytest.raises(PydanticSerializationError, match="invalid tool result content"):
        result.model_dump()


def test_a_copy_with_changes_is_validated_like_a_new_result() -> None:
    result = ToolResult(success=False, content=[TEXT])  # type: ignore[list-item]

    changed = result.model_copy(update={"error": {"message": "m"}, "content": [IMAGE]})

    assert changed.model_dump() == {"success": False, "output": "m", "error": {"message": "m"}, "content": [IMAGE]}
    assert result.model_dump() == {"success": False, "output": None, "error": None, "content": [TEXT]}
    with pytest.raises(ValidationError, match="invalid tool result content"):
        result.model_copy(update={"content": "text"})


def test_a_deep_copy_shares_nothing() -> None:
    result = ToolResult(output={"list": [1]})

    assert result.model_copy(deep=True) == result
    assert result.model_copy(deep=True).output["list"] is not result.output["list"]  # type: ignore[index]
    assert result.model_copy().output is result.output


def test_a_subclass_copies_itself() -> None:
    class Timed(ToolResult):
        seconds: float = 0.0

    copied = Timed(output="o", seconds=1.5).model_copy(update={"output": "p"})

    assert copied == Timed(output="p", seconds=1.5)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult(output="done"), "done"),
        (ToolResult(output={"a": 1}), "{'a': 1}"),
        (ToolResult(), "Success"),
        (ToolResult(output=""), "Success"),
        (ToolResult(output=0), "Success"),
        (ToolResult(success=False, error={"message": "broken"}), "Error: broken"),
        (ToolResult(success=False, error={"code": 1}), "Error: Unknown error"),
        (ToolResult(success=False, error={}), "Failed"),
        (ToolResult(success=False, output="o"), "Failed"),
    ],
)
def test_a_tool_result_reads_as_one_line(result: ToolResult, text: str) -> None:
    assert str(result) == text


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult(output="done"), "done"),
        (ToolResult(output=""), ""),
        (ToolResult(output=0), "0"),
        (ToolResult(output=False), "False"),
        (ToolResult(output={"cost": Decimal("0.10"), "é": [None]}), '{"cost": "0.10", "\\u00e9": [null]}'),
        (ToolResult(output=[1, "a"]), '[1, "a"]'),
        (ToolResult(output=(1, 2)), "(1, 2)"),
        (ToolResult(), "Success"),
        (ToolResult(success=False, output={"a": 1}, error={"message": "m"}), '{"a": 1}'),
        (ToolResult(success=False, error={"message": "broken"}), "broken"),
        (ToolResult(success=False, error={"message": ""}), "Error: Unknown error"),
        (ToolResult(success=False), "Error: Failed"),
    ],
)
def test_the_model_is_told_the_output_or_what_became_of_it(result: ToolResult, text: str) -> None:
    assert result.get_serialized_output() == text


def test_an_error_message_set_later_is_told_as_an_error() -> None:
    result = ToolResult(success=False)

    result.error = {"message": "broken"}

    assert result.get_serialized_output() == "Error: broken"


def test_output_that_json_lacks_is_the_tools_mistake() -> None:
    with pytest.raises(TypeError, match=r"^Object of type set is not JSON serializable$"):
        ToolResult(output={"a": {1}}).get_serialized_output()


@given(st.text(st.characters(categories=["Cc", "Cs", "Lu", "Zs", "So"])))
def test_the_model_is_told_no_control_characters_or_lone_surrogates(text: str) -> None:
    told = ToolResult(output=text).get_serialized_output()

    assert told == "".join(character for character in text if character in "\t\n\r" or category(character)[0] != "C")
    told.encode()


def test_hooks_are_shown_a_note_in_place_of_an_image() -> None:
    result = ToolResult(output={"cost": Decimal("1")}, error={"at": datetime(2026, 1, 2)}, content=[TEXT, IMAGE])  # type: ignore[list-item]

    assert result.safe_hook_presentation() == {
        "success": True,
        "output": {"cost": "1"},
        "error": {"at": "2026-01-02T00:00:00"},
        "content": [
            TEXT,
            {
                "type": "text",
                "text": "[Image omitted from tool event; original retained for model request if unmodified.]",
            },
        ],
    }


def test_hooks_see_three_keys_when_there_is_no_content() -> None:
    shown = ToolResult(output=math.nan).safe_hook_presentation()

    assert shown == {"success": True, "output": "nan", "error": None}
