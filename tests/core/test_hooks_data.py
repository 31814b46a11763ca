"""What handlers are given to read, and which objects the emitter gets back."""

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, RootModel

from amplifier_core.hooks import HookRegistry, HookResult
from amplifier_core.models import ToolResult

Handler = Callable[[str, dict[str, Any]], Any]


def answering(answer: object, seen: list[Any] | None = None) -> Handler:
    """Return a handler that notes the data it gets in `seen` and gives always the same answer."""

    async def handler(event: str, data: Any) -> object:
        if seen is not None:
            seen.append(data)
        return answer

    return handler


def modifying(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Handler:
    """Return a handler that answers with what `change` makes of its data."""

    async def handler(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="modify", data=change(data))

    return handler


@pytest.fixture
def hooks() -> HookRegistry:
    return HookRegistry()


async def test_default_fields_fill_in_what_the_emitter_leaves_out(hooks: HookRegistry) -> None:
    seen: list[Any] = []
    hooks.register("tool:pre", answering(None, seen))
    hooks.set_default_fields(session_id="s-1", parent_id=None)

    result = await hooks.emit("tool:pre", {"session_id": "mine", "n": 1})

    del seen[0]["timestamp"]
    assert seen == [{"session_id": "mine", "parent_id": None, "n": 1}]
    assert (result.data["session_id"], result.data["parent_id"]) == ("mine", None)


async def test_setting_default_fields_replaces_all_of_them(hooks: HookRegistry) -> None:
    seen: list[Any] = []
    hooks.register("tool:pre", answering(None, seen))
    hooks.set_default_fields(first=1)
    hooks.set_default_fields(second=2)

    await hooks.emit("tool:pre", {})
    hooks.set_default_fields()
    await hooks.emit("tool:pre", {})

    assert [sorted(data) for data in seen] == [["second", "timestamp"], ["timestamp"]]


async def test_the_timestamp_is_the_time_of_the_emit_whatever_the_emitter_says(hooks: HookRegistry) -> None:
    seen: list[Any] = []
    hooks.register("tool:pre", answering(None, seen))
    hooks.set_default_fields(timestamp="default")
    payload = {"timestamp": "yesterday"}

    before = datetime.now(UTC)
    result = await hooks.emit("tool:pre", payload)
    after = datetime.now(UTC)

    assert before <= datetime.fromisoformat(seen[0]["timestamp"]) <= after
    assert seen[0]["timestamp"].endswith("+00:00")
    assert result.data["timestamp"] == seen[0]["timestamp"]
    assert payload == {"timestamp": "yesterday"}


@pytest.mark.parametrize("payload", [None, [1, 2], "text", 5], ids=repr)
async def test_a_payload_that_is_no_dict_reaches_handlers_unchanged(hooks: HookRegistry, payload: Any) -> None:
    seen: list[Any] = []
    hooks.set_default_fields(session_id="s-1")

    unheard = await hooks.emit("tool:pre", payload)
    hooks.register("tool:pre", answering(None, seen))
    hooks.register("tool:pre", answering(HookResult(), seen))
    heard = await hooks.emit("tool:pre", payload)

    assert len(seen) == 2
    assert all(data is payload for data in seen)
    assert [(unheard.action, unheard.data), (heard.action, heard.data)] == [("continue", {})] * 2


async def test_values_are_handed_on_by_reference(hooks: HookRegistry) -> None:
    seen: list[Any] = []
    hooks.register("tool:pre", answering(None, seen))
    hooks.register("tool:pre", answering(HookResult(), seen))
    messages, marker = [{"role": "user"}], object()

    await hooks.emit("tool:pre", {"messages": messages, "marker": marker})

    assert all(data["messages"] is messages and data["marker"] is marker for data in seen)
    assert len(seen) == 2


class Untouchable(dict[str, Any]):
    """Breaks when anybody looks inside."""

    def refuse(self, *arguments: Any) -> Any:
        raise AssertionError("looked inside")

    __iter__ = __len__ = __getitem__ = __eq__ = __copy__ = __deepcopy__ = keys = items = values = copy = refuse
    __hash__ = None  # type: ignore[assignment]


async def test_values_are_not_looked_into(hooks: HookRegistry) -> None:
    hooks.register("tool:pre", modifying(lambda data: {**data, "added": 1}))
    value = Untouchable()

    result = await hooks.emit("tool:pre", {"value": value})

    assert result.data["value"] is value


async def test_each_handler_has_its_own_dict_to_change(hooks: HookRegistry) -> None:
    seen: list[Any] = []

    async def scribbling(event: str, data: dict[str, Any]) -> HookResult:
        data["added"] = data["replaced"] = "scribble"
        del data["removed"]
        return HookResult(data=data)

    hooks.register("tool:pre", scribbling)
    hooks.register("tool:pre", answering(None, seen))
    payload = {"replaced": 1, "removed": 2}

    result = await hooks.emit("tool:pre", payload)

    expected = {"replaced": 1, "removed": 2, "timestamp": seen[0]["timestamp"]}
    assert seen == [expected]
    assert result.data == expected
    assert payload == {"replaced": 1, "removed": 2}


class Stamped(BaseModel):
    at: datetime
    inner: Any = None


class OldFashioned:
    """Knows `model_dump`, but not its modes."""

    def model_dump(self) -> dict[str, Any]:
        return {"plain": True}


class Undumpable:
    def model_dump(self, **options: Any) -> dict[str, Any]:
        raise RuntimeError("not today")


async def test_models_at_the_top_level_are_dumped_for_handlers_and_come_back_as_they_were(hooks: HookRegistry) -> None:
    seen: list[Any] = []
    hooks.register("tool:post", answering(None, seen))
    nested = {"model": ToolResult(output="kept")}
    payload = {
        "result": ToolResult(output="text"),
        "stamped": Stamped(at=datetime(2030, 1, 2, tzinfo=UTC)),
        "old": OldFashioned(),
        "broken": Undumpable(),
        "class": ToolResult,
        "nested": nested,
    }
    hooks.set_default_fields(default=ToolResult(output="default"))

    result = await hooks.emit("tool:post", payload)

    assert seen[0]["result"] == {"success": True, "output": "text", "error": None}
    assert seen[0]["default"] == {"success": True, "output": "default", "error": None}
    assert seen[0]["stamped"] == {"at": "2030-01-02T00:00:00Z", "inner": None}
    assert seen[0]["old"] == {"plain": True}
    assert seen[0]["broken"] is payload["broken"]
    assert seen[0]["class"] is ToolResult
    assert seen[0]["nested"] is nested
    assert all(result.data[key] is value for key, value in payload.items())


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), "\ud800", 2**70, {1: b"\xff"}, {"deep": [{"set": {1, 2}}]}], ids=repr
)
async def test_values_that_json_cannot_hold_pass_unharmed(hooks: HookRegistry, value: Any) -> None:
    seen: list[Any] = []
    hooks.register("tool:pre", answering(HookResult(), seen))

    result = await hooks.emit("tool:pre", {"value": value})

    assert seen[0]["value"] is value
    assert result.data["value"] is value


async def test_without_handlers_the_payload_comes_back_and_nothing_is_added(hooks: HookRegistry) -> None:
    hooks.set_default_fields(session_id="s-1")
    hooks.register("tool:pre", answering(None), name="gone")
    hooks.unregister("gone")
    payload = {"result": ToolResult(output="text"), "messages": [1]}

    result = await hooks.emit("tool:pre", payload)

    assert result == HookResult(action="continue", data=payload)
    assert all(result.data[key] is value for key, value in payload.items())


@pytest.mark.parametrize("copy", [dict, deepcopy], ids=["shallow", "deep"])
async def test_what_a_modifying_handler_leaves_equal_is_still_the_emitters_own_object(
    hooks: HookRegistry, copy: Callable[[Any], Any]
) -> None:
    hooks.register("tool:post", modifying(lambda data: {**copy(data), "added": 1}))
    hooks.register("tool:post", modifying(lambda data: {**copy(data), "tool_input": {"path": "b"}}))
    payload = {"result": ToolResult(output=["text"]), "tool_input": {"path": "a"}, "messages": [{"role": "user"}]}

    result = await hooks.emit("tool:post", payload)

    assert result.action == "continue"
    assert result.data["result"] is payload["result"]
    assert result.data["messages"] is payload["messages"]
    assert (result.data["tool_input"], result.data["added"]) == ({"path": "b"}, 1)


async def test_what_a_modifying_handler_changes_is_what_the_emitter_gets(hooks: HookRegistry) -> None:
    class Incomparable:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("cannot be compared")

        __hash__ = None  # type: ignore[assignment]

    replacement = Incomparable()
    hooks.register("tool:post", modifying(lambda data: {**data, "odd": replacement, "flag": True, "n": 1}))
    payload = {"odd": Incomparable(), "flag": 1, "n": 1.0}

    result = await hooks.emit("tool:post", payload)

    assert result.data["odd"] is replacement
    assert result.data["flag"] is True
    assert type(result.data["n"]) is int


async def test_a_dumped_model_that_a_handler_changed_in_place_is_not_replaced_by_the_original(
    hooks: HookRegistry,
) -> None:
    def redact(data: dict[str, Any]) -> dict[str, Any]:
        data["result"]["output"] = "[redacted]"
        return data

    hooks.register("tool:post", modifying(redact))
    payload = {"result": ToolResult(output="secret"), "other": ToolResult(output="public")}

    result = await hooks.emit("tool:post", payload)

    assert result.data["result"] == {"success": True, "output": "[redacted]", "error": None}
    assert result.data["other"] is payload["other"]
    assert payload["result"].output == "secret"


async def test_a_removed_key_stays_removed_whatever_its_value_was(hooks: HookRegistry) -> None:
    hooks.register("tool:post", modifying(lambda data: {"kept": 1}))

    result = await hooks.emit("tool:post", {"nothing": RootModel[None](None), "result": ToolResult()})

    assert result.data == {"kept": 1}


async def test_the_returned_dict_belongs_to_the_emitter(hooks: HookRegistry) -> None:
    hooks.register("tool:pre", answering(HookResult(action="modify", data={"n": 1})))

    (await hooks.emit("tool:pre", {})).data["scribble"] = True

    assert (await hooks.emit("tool:pre", {})).data == {"n": 1}


@pytest.mark.parametrize("has_handler", [True, False], ids=["heard", "unheard"])
async def test_a_model_as_the_whole_payload_is_its_fields(hooks: HookRegistry, has_handler: bool) -> None:
    seen: list[Any] = []
    if has_handler:
        hooks.register("llm:request", answering(None, seen))

    result = await hooks.emit("llm:request", ToolResult(output="done"))  # type: ignore[arg-type]

    assert result.action == "continue"
    for data in (*seen, result.data):
        assert (data["output"], bool(data["request_id"]), "timestamp" in data) == ("done", True, has_handler)


async def test_a_model_as_the_whole_payload_can_be_collected_for(hooks: HookRegistry) -> None:
    hooks.register("tool:post", lambda event, data: HookResult(data={"seen": data["output"]}))

    assert await hooks.emit_and_collect("tool:post", ToolResult(output="x")) == [{"seen": "x"}]  # type: ignore[arg-type]
