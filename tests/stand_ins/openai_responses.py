"""The Responses API as its server sees it: what it refuses, and what its answers look like."""

import itertools
import re
from collections.abc import Collection
from typing import Any

from openai_schema import (
    Problem,
    refuse_unless,
    response_items,
    response_parts,
    response_request,
    response_tool_types,
)

Item = dict[str, Any]

_INPUT_PARTS, _OUTPUT_PARTS = {"input_text", "input_image", "input_file"}, {"output_text", "refusal"}
_ROLES = frozenset({"user", "system", "developer", "assistant"})
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_IMAGE = re.compile(r"(https?://\S+|data:image/[a-z]+;base64,[A-Za-z0-9+/]+=*)")
_CHECKED_BY_HAND = frozenset({"input", "tools"})
_NOT_HERE = ("conversation", "prompt", "background")


class ResponseStore:
    """What the server remembers: responses that were to be stored, and the reasoning it has issued."""

    def __init__(self) -> None:
        self.issued: dict[str, str] = {}  # encrypted content by the id of the reasoning
        self.histories: dict[str, list[Item]] = {}
        self.numbers = itertools.count(1)

    def check(self, body: dict[str, Any]) -> None:
        """Raise a `Problem` for the first thing that is wrong with a request."""
        shape = response_request()
        shape.check_names(body)
        for name in body.keys() - _CHECKED_BY_HAND:
            shape.check_value(name, body[name])
        for name in _NOT_HERE:
            refuse_unless(not body.get(name), f"'{body.get(name)}' not found: this server has none.", param=name)
        refuse_unless(isinstance(body.get("model"), str), "Missing required parameter: 'model'.", param="model")
        refuse_unless(isinstance(body.get("input"), list | str), "Missing required parameter: 'input'.", param="input")
        refuse_unless((body.get("max_output_tokens") or 16) >= 16, "Expected a value >= 16.", param="max_output_tokens")
        check_tools(body, lambda tool: tool if tool["type"] == "function" else None, response_tool_types())
        is_refused = body.get("prompt_cache_retention") == "in_memory" and body["model"].startswith("gpt-5.5")
        refuse_unless(not is_refused, "in_memory is not supported.", "invalid_value", "prompt_cache_retention")
        for place, item in enumerate(_input_of(body)):
            self._check_item(item, f"input[{place}]", is_stored=body.get("store") is not False)
        _check_order(self.history_of(body))

    def history_of(self, body: dict[str, Any]) -> list[Item]:
        """Return everything that a request stands on; what it repeats of a stored response counts once."""
        given, previous = _input_of(body), body.get("previous_response_id")
        if previous is None:
            return given
        if previous not in self.histories:
            message = f"Previous response with id '{previous}' not found."
            raise Problem(message, "previous_response_not_found", "previous_response_id")
        repeated = {item["call_id"] for item in given if item.get("type") == "function_call"}
        stored = [item for item in self.histories[previous] if item.get("call_id") not in repeated]
        return [*stored, *given]

    def _check_item(self, item: Item, param: str, *, is_stored: bool) -> None:
        refuse_unless(isinstance(item, dict), "Invalid type: expected an object.", "invalid_type", param)
        kind = item.get("type", "message" if "role" in item else None)
        shapes = response_items()
        refuse_unless(kind in shapes, f"Invalid value: '{kind}'.", "invalid_value", f"{param}.type")
        shapes[kind].check_names(item, param)
        if kind == "message":
            role, content = item["role"], item["content"]
            refuse_unless(role in _ROLES, f"Invalid value: '{role}'.", "invalid_value", f"{param}.role")
            if not isinstance(content, str):
                _check_parts(content, _OUTPUT_PARTS if role == "assistant" else _INPUT_PARTS, f"{param}.content")
        elif kind == "reasoning":
            self._check_reasoning(item, param, is_stored=is_stored)
        elif kind == "function_call":
            refuse_unless(isinstance(item["arguments"], str), "Expected a string.", param=f"{param}.arguments")
            refuse_unless(_NAME.fullmatch(item["name"]), "Invalid name.", param=f"{param}.name")
            refuse_unless(0 < len(item["call_id"]) <= 64, "string too long", param=f"{param}.call_id")
        elif kind == "function_call_output":
            refuse_unless(isinstance(item.get("call_id"), str), "Missing call_id.", param=f"{param}.call_id")
            if not isinstance(item["output"], str):
                _check_parts(item["output"], _INPUT_PARTS, f"{param}.output")
        elif kind == "item_reference":
            raise Problem(f"Item with id '{item['id']}' not found.", param=param)

    def _check_reasoning(self, item: Item, param: str, *, is_stored: bool) -> None:
        refuse_unless(item["id"] and isinstance(item["summary"], list), "Missing parameter.", param=param)
        encrypted = item.get("encrypted_content")
        if not is_stored:
            refuse_unless(encrypted, f"Item with id '{item['id']}' not found.", param=param)
        if encrypted is not None:
            is_genuine = self.issued.get(item["id"]) == encrypted
            refuse_unless(is_genuine, "The encrypted content could not be verified.", "invalid_encrypted_content")


def check_tools(body: dict[str, Any], function_of: Any, types: Collection[str]) -> None:
    """Check types of tools, and names and schemas of functions."""
    for place, tool in enumerate(body.get("tools") or ()):
        param = f"tools[{place}]"
        refuse_unless(tool["type"] in types, f"Invalid value: '{tool['type']}'.", "invalid_value", f"{param}.type")
        function = function_of(tool)
        if function is not None:
            refuse_unless(_NAME.fullmatch(function["name"]), "Invalid tool name.", param=f"{param}.name")
            parameters = function.get("parameters")
            is_object = isinstance(parameters, dict) and parameters.get("type") == "object"
            refuse_unless(is_object or parameters is None, "Invalid schema.", "invalid_function_parameters", param)


def _input_of(body: dict[str, Any]) -> list[Item]:
    given = body["input"]
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)


def _check_parts(content: Any, allowed: set[str], param: str) -> None:
    refuse_unless(isinstance(content, list) and content, "Expected an array of parts.", param=param)
    for part in content:
        kind = part.get("type")
        refuse_unless(kind in allowed, f"Invalid value: '{kind}'.", "invalid_value", param)
        response_parts()[kind].check_names(part, param)
        if kind == "input_image" and part.get("image_url") is not None:
            refuse_unless(_IMAGE.fullmatch(part["image_url"]), "Invalid image.", "invalid_image_url", param)
        elif kind.endswith("text"):
            refuse_unless(isinstance(part["text"], str), "Expected a string.", param=param)


def _check_order(history: list[Item]) -> None:
    waiting: list[str] = []
    answered: set[str] = set()
    for place, item in enumerate(history):
        kind = item.get("type", "message")
        following = history[place + 1] if place + 1 < len(history) else {}
        if kind == "reasoning":
            message = f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
            refuse_unless(_is_of_the_model(following), message)
        elif kind == "function_call":
            refuse_unless(item["call_id"] not in answered and item["call_id"] not in waiting, "Duplicate call_id.")
            waiting.append(item["call_id"])
        elif kind == "function_call_output":
            message = f"No tool call found for function call output with call_id {item['call_id']}."
            refuse_unless(item["call_id"] in waiting, message, param="input")
            waiting.remove(item["call_id"])
            answered.add(item["call_id"])
        elif item.get("role") == "user" and waiting:
            break
    refuse_unless(not waiting, f"No tool output found for function call {''.join(waiting[:1])}.", param="input")


def _is_of_the_model(item: Item) -> bool:
    kind = item.get("type", "message" if "role" in item else "")
    return item.get("role") == "assistant" if kind == "message" else kind != "" and not kind.endswith("_output")


def responses_answer(
    store: ResponseStore, body: dict[str, Any], said: Any
) -> tuple[dict[str, Any], list[tuple[str | None, Any]]]:
    """Return the response object for what the model says, and the events that a stream of it has."""
    number = next(store.numbers)
    output = list(_output_items(store, body, said, number))
    usage = said.usage
    response: dict[str, Any] = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "status": "incomplete" if said.cut else "completed",
        "error": None,
        "incomplete_details": {"reason": said.cut} if said.cut else None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "model": said.model or body["model"],
        "output": output,
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": body.get("previous_response_id"),
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
        "store": body.get("store") is not False,
        "temperature": body.get("temperature") or 1.0,
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p") or 1.0,
        "truncation": body.get("truncation") or "disabled",
        "usage": usage
        and {
            "input_tokens": usage["input"],
            "input_tokens_details": {"cached_tokens": usage["cached"], "cache_write_tokens": 0},
            "output_tokens": usage["output"],
            "output_tokens_details": {"reasoning_tokens": usage["reasoning"]},
            "total_tokens": usage["input"] + usage["output"],
        },
        "metadata": {},
    }
    if body.get("store") is not False:
        kept = [item for item in output if item["type"] != "reasoning"]
        store.histories[response["id"]] = [*store.history_of(body), *kept]
    return response, [(event["type"], event) for event in stream_events(response)]


def _output_items(store: ResponseStore, body: dict[str, Any], said: Any, number: int) -> Any:
    if said.thinking:
        reasoning = {"type": "reasoning", "id": f"rs_{number}"}
        reasoning["summary"] = [{"type": "summary_text", "text": text} for text in said.thinking.split("\n")]
        if said.encrypted and "reasoning.encrypted_content" in (body.get("include") or ()):
            encrypted = said.encrypted if isinstance(said.encrypted, str) else f"gAAA-{number}"
            reasoning["encrypted_content"] = store.issued[reasoning["id"]] = encrypted
        yield reasoning
    status = "incomplete" if said.cut and not said.calls else "completed"
    message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": status}
    if said.text:
        yield {**message, "content": [{"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}]}
    if said.refusal:
        yield {**message, "content": [{"type": "refusal", "refusal": said.refusal}]}
    for place, (call_id, name, arguments) in enumerate(said.arguments()):
        is_partial = said.cut and not arguments.endswith("}")
        call = {"type": "function_call", "id": f"fc_{number}_{place}", "call_id": call_id, "name": name}
        yield {**call, "arguments": arguments, "status": "incomplete" if is_partial else "completed"}


def stream_events(response: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a stream that ends with this response."""
    begun = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(response["output"]):
        events.append({"type": "response.output_item.added", "output_index": index, "item": _empty(item)})
        events += [{**event, "item_id": item["id"], "output_index": index} for event in _item_events(item)]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": f"response.{response['status']}", "response": response})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _empty(item: Item) -> Item:
    empty = {"summary": [], "content": [], "arguments": ""}
    begun = {key: empty.get(key, value) for key, value in item.items() if key != "encrypted_content"}
    return {**begun, "status": "in_progress"} if "status" in item else begun


def _item_events(item: Item) -> Any:
    if item["type"] == "reasoning":
        for place, part in enumerate(item["summary"]):
            at = {"summary_index": place}
            yield {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}}
            for piece in pieces(part["text"]):
                yield {"type": "response.reasoning_summary_text.delta", **at, "delta": piece}
            yield {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]}
            yield {"type": "response.reasoning_summary_part.done", **at, "part": part}
    elif item["type"] == "function_call":
        for piece in pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", "delta": piece}
        yield {"type": "response.function_call_arguments.done", "arguments": item["arguments"]}
    else:
        for place, part in enumerate(item.get("content") or ()):  # what the vendor runs itself has none
            at = {"content_index": place}
            key, name = ("text", "output_text") if part["type"] == "output_text" else ("refusal", "refusal")
            yield {"type": "response.content_part.added", **at, "part": {**part, key: ""}}
            for piece in pieces(part[key]):
                yield {"type": f"response.{name}.delta", **at, "delta": piece}
            yield {"type": f"response.{name}.done", **at, key: part[key]}
            yield {"type": "response.content_part.done", **at, "part": part}


def pieces(text: str) -> list[str]:
    """Return a text as the fragments it is streamed in; the first is empty, as the vendor's sometimes are."""
    return ["", *re.findall(r"\S+\s*|\s+", text)]
