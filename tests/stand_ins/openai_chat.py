"""The Chat Completions API as its server sees it: what it refuses, and what its answers look like."""

from typing import Any

from openai_responses import check_tools, pieces
from openai_schema import chat_messages, chat_parts, chat_request, refuse_unless

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_TEXT = frozenset({"text"})
_PARTS = {"user": frozenset({"text", "image_url", "input_audio", "file"}), "assistant": frozenset({"text", "refusal"})}
_TOOL_TYPES = frozenset({"function", "custom"})
_CHECKED_BY_HAND = frozenset({"messages", "tools"})


def check_chat(body: dict[str, Any]) -> None:
    """Raise a `Problem` for the first thing that is wrong with a request."""
    shape = chat_request()
    shape.check_names(body)
    for name in body.keys() - _CHECKED_BY_HAND:
        shape.check_value(name, body[name])
    refuse_unless(isinstance(body["messages"], list) and body["messages"], "'messages' is empty.", param="messages")
    if body.get("stream_options"):
        refuse_unless(body.get("stream"), "'stream_options' is only allowed when 'stream' is enabled.")
    check_tools(body, lambda tool: tool["function"] if tool["type"] == "function" else None, _TOOL_TYPES)
    for name in ("tool_choice", "parallel_tool_calls"):
        if body.get(name) is not None:
            refuse_unless(body.get("tools"), f"'{name}' is only allowed when 'tools' are specified.", param=name)
    waiting: list[str] = []
    for place, message in enumerate(body["messages"]):
        _check_message(message, f"messages[{place}]")
        if message["role"] == "tool":
            refuse_unless(
                message["tool_call_id"] in waiting,
                "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
            )
            waiting.remove(message["tool_call_id"])
            continue
        _check_answered(waiting)
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
    _check_answered(waiting)


def _check_answered(waiting: list[str]) -> None:
    message = "An assistant message with 'tool_calls' must be followed by tool messages responding to each of them: "
    refuse_unless(not waiting, message + ", ".join(waiting))


def _check_message(message: dict[str, Any], param: str) -> None:
    role = message.get("role")
    refuse_unless(role in _ROLES, f"Invalid role: {role}", param=f"{param}.role")
    chat_messages()[role].check_names(message, param)
    content, calls = message.get("content"), message.get("tool_calls")
    refuse_unless(content is not None or calls, "expected a string, got null", param=f"{param}.content")
    refuse_unless(isinstance(content, str | list | None), "expected a string or an array", param=f"{param}.content")
    for part in content if isinstance(content, list) else ():
        _check_part(part, _PARTS.get(role, _TEXT), param)
    for call in calls or ():
        refuse_unless(set(call) == {"id", "type", "function"} and call["type"] == "function", "Invalid tool call.")
        refuse_unless(isinstance(call["function"]["arguments"], str), "Expected a string.", param=param)
        refuse_unless(len(call["id"]) <= 40, f"'{call['id']}' is too long", param=f"{param}.tool_calls")


def _check_part(part: dict[str, Any], allowed: frozenset[str], param: str) -> None:
    kind = part["type"]
    refuse_unless(kind in allowed, f"Invalid content part: {kind}", param=param)
    chat_parts()[kind].check_names(part, param)
    if kind == "text":
        refuse_unless(isinstance(part["text"], str), "Expected a string.", param=param)
    elif kind == "image_url":
        refuse_unless(part["image_url"]["url"].startswith(("data:image/", "http")), "Invalid image.", param=param)


def chat_answer(body: dict[str, Any], said: Any) -> tuple[dict[str, Any], list[tuple[str | None, Any]]]:
    """Return the completion for what the model says, and the chunks that a stream of it has."""
    calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in said.arguments()
    ]
    finish = {"max_output_tokens": "length"}.get(said.cut, said.cut) or ("tool_calls" if calls else "stop")
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
    message |= {"reasoning_content": said.thinking} if said.thinking else {}
    message |= {"refusal": said.refusal} if said.refusal else {}
    message |= {"tool_calls": calls} if calls else {}
    usage = said.usage and {
        "prompt_tokens": said.usage["input"],
        "completion_tokens": said.usage["output"],
        "total_tokens": said.usage["input"] + said.usage["output"],
        "prompt_tokens_details": {"cached_tokens": said.usage["cached"]},
        "completion_tokens_details": {"reasoning_tokens": said.usage["reasoning"]},
    }
    head = {"id": "chatcmpl-1", "created": 0, "model": said.model or body["model"]}
    document: dict[str, Any] = {**head, "object": "chat.completion"}
    document["choices"] = [{"index": 0, "message": message, "finish_reason": finish}]
    if usage:
        document["usage"] = usage
    deltas = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in pieces(said.thinking)[1:]]
    deltas += [{"content": piece} for piece in pieces(said.text)[1:]]
    deltas += [{"refusal": piece} for piece in pieces(said.refusal)[1:]]
    deltas += _call_deltas(calls)
    chunks = [chat_chunk(delta, **head) for delta in deltas] + [chat_chunk({}, finish, **head)]
    if usage and (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**chat_chunk({}, **head), "choices": [], "usage": usage})
    return document, [*((None, chunk) for chunk in chunks), (None, "[DONE]")]


def chat_chunk(delta: dict[str, Any], finish: str | None = None, **head: Any) -> dict[str, Any]:
    """Return one chunk of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    given = {"id": "chatcmpl-1", "created": 0, "model": "local", **head}
    return {**given, "object": "chat.completion.chunk", "choices": [choice]}


def chat_stream(*deltas: dict[str, Any], finish: str | None = "stop", done: bool = True) -> list[tuple[None, Any]]:
    """Return the events of a stream of these deltas, for what no honest server would say."""
    chunks: list[tuple[None, Any]] = [(None, chat_chunk(delta)) for delta in deltas]
    chunks += [(None, chat_chunk({}, finish))] if finish else []
    return [*chunks, (None, "[DONE]")] if done else chunks


def _call_deltas(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls as their pieces arrive: all names first, then the arguments in turns."""
    opened = [
        {"tool_calls": [{**call, "index": index, "function": {**call["function"], "arguments": ""}}]}
        for index, call in enumerate(calls)
    ]
    halves: list[dict[str, Any]] = []
    for half in (0, 1):
        for index, call in enumerate(calls):
            arguments = call["function"]["arguments"]
            middle = len(arguments) // 2
            piece = arguments[middle:] if half else arguments[:middle]
            halves.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    return opened + halves
