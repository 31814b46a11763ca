"""The Chat Completions API as its server sees it: what it refuses, and what its answers look like."""

from typing import Any

from openai_responses import Problem, check_tools, pieces, refuse_unless

_FIELDS = {
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "stop",
    "seed",
    "response_format",
    "reasoning_effort",
    "prompt_cache_key",
    "stream",
    "stream_options",
    "user",
    "n",
}
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_MESSAGE_KEYS = frozenset({"role", "content", "tool_calls", "tool_call_id"})


def check_chat(body: dict[str, Any]) -> None:
    """Raise a `Problem` for the first thing that is wrong with a request."""
    for name in body:
        refuse_unless(name in _FIELDS, f"Unrecognized request argument supplied: {name}", "unknown_parameter", name)
    refuse_unless(body.get("messages"), "Missing required parameter: 'messages'.", param="messages")
    if "stream_options" in body:
        refuse_unless(body.get("stream"), "'stream_options' is only allowed when 'stream' is enabled.")
    check_tools(body, lambda tool: tool["function"])
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
    refuse_unless(message.get("role") in _ROLES, f"Invalid role: {message.get('role')}", param=f"{param}.role")
    for key in set(message) - _MESSAGE_KEYS:
        raise Problem(f"Additional properties are not allowed ('{key}' was unexpected)", param=param)
    calls = message.get("tool_calls")
    content = message.get("content")
    refuse_unless(content is not None or calls, "expected a string, got null", param=f"{param}.content")
    if isinstance(content, list):
        for part in content:
            has_text = part["type"] == "text" and isinstance(part["text"], str) and set(part) == {"type", "text"}
            has_image = part["type"] == "image_url" and part["image_url"]["url"].startswith(("data:image/", "http"))
            is_known = has_text or (has_image and message["role"] == "user")
            refuse_unless(is_known, f"Invalid content part: {part['type']}", param=param)
    for call in calls or ():
        refuse_unless(set(call) == {"id", "type", "function"} and call["type"] == "function", "Invalid tool call.")
        refuse_unless(isinstance(call["function"]["arguments"], str), "Expected a string.", param=param)
        refuse_unless(len(call["id"]) <= 40, f"'{call['id']}' is too long", param=f"{param}.tool_calls")


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
