"""What holds for every view of every conversation under every budget."""

import asyncio
import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amplifier_kit.contexts.compacting import CompactingContext
from amplifier_kit.contexts.groups import missing_results
from amplifier_kit.messages.stored_messages import estimate_messages

Message = dict[str, Any]

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 4000}}

texts = st.builds(lambda word, times: word * times, st.sampled_from(["ab ", "é", "line\n"]), st.integers(0, 400))
call_ids = st.sampled_from([f"call_{number}" for number in range(8)])


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def caller(ids: list[str], style: str) -> Message:
    if style == "tool_calls":
        return {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": call_id, "tool": "read", "arguments": {}} for call_id in ids],
        }
    kind = {"tool_use": "tool_use", "tool_call": "tool_call"}[style]
    return {
        "role": "assistant",
        "content": [{"type": kind, "id": call_id, "name": "read", "input": {}} for call_id in ids],
    }


def result(call_id: str, text: str, style: str) -> Message:
    if style in ("blocks", "beside text"):
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        beside = [{"type": "text", "text": f"and then? {text}"}] if style == "beside text" else []
        return {"role": "user", "content": [block, *beside]}
    content = [{"type": "text", "text": text}, IMAGE] if style == "image" else text
    return {"role": "tool", "tool_call_id": call_id, "content": content}


plain_messages = st.one_of(
    st.builds(user, texts),
    st.builds(lambda text: {"role": "user", "content": [{"type": "text", "text": text}, IMAGE]}, texts),
    st.builds(lambda text: {"role": "assistant", "content": text}, texts),
    st.builds(lambda text: {"role": "system", "content": text[:200]}, texts),
    st.builds(lambda text: {"role": "user", "content": text, "metadata": {"source": "hook"}}, texts),
    st.builds(
        lambda text: {"role": "assistant", "content": text, "metadata": {"openai:tool_search_items": [1]}},
        texts,
    ),
)
call_messages = st.builds(
    caller,
    st.lists(call_ids, min_size=1, max_size=4, unique=True),
    st.sampled_from(["tool_calls", "tool_use", "tool_call"]),
)
result_messages = st.builds(
    result, call_ids, texts, st.sampled_from(["text", "text", "image", "blocks", "beside text"])
)


@st.composite
def whole_groups(draw: st.DrawFn) -> list[Message]:
    """A call message with all its results, as orchestrators write them."""
    ids = draw(st.lists(call_ids, min_size=1, max_size=4, unique=True))
    style = draw(st.sampled_from(["text", "image", "blocks", "beside text"]))
    return [caller(ids, "tool_calls"), *(result(call_id, draw(texts), style) for call_id in ids)]


conversations = st.lists(
    st.one_of(whole_groups(), st.lists(st.one_of(plain_messages, call_messages, result_messages), max_size=3)),
    max_size=14,
).map(lambda parts: [message for part in parts for message in part])

settings = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(60, 4000),
        "compact_threshold": st.sampled_from([0.3, 0.6, 0.92, 1.0]),
        "target_usage": st.sampled_from([0.1, 0.5, 0.9]),
        "protected_recent": st.sampled_from([0.0, 0.1, 0.3, 1.0]),
        "protected_tool_results": st.integers(-1, 5),
        "truncate_chars": st.sampled_from([0, 20, 250]),
        "compaction_notice_enabled": st.booleans(),
        "compaction_notice_token_reserve": st.sampled_from([0, 100, 800]),
        "image_token_estimate": st.sampled_from([0, 200]),
        "max_tool_result_bytes": st.just(1024),
    }
)


def is_notice(message: Message) -> bool:
    return (message.get("metadata") or {}).get("source") == "context-compaction"


def calls_in(message: Message) -> list[str]:
    if message["role"] != "assistant":
        return []
    calls = [call["id"] for call in message.get("tool_calls", [])]
    content = message["content"] if isinstance(message["content"], list) else []
    return calls or [block["id"] for block in content if block["type"] in ("tool_use", "tool_call")]


def answers_in(message: Message) -> list[str]:
    if message["role"] == "tool":
        return [message["tool_call_id"]]
    content = message["content"] if isinstance(message["content"], list) else []
    return [block["tool_use_id"] for block in content if block["type"] == "tool_result"]


def broken_pairs(view: list[Message]) -> list[str]:
    """Say which calls and results of a view a provider would refuse."""
    problems: list[str] = []
    waiting: list[str] = []
    for place, message in enumerate(view):
        answers = answers_in(message)
        if answers:
            problems += [f"{place}: unexpected result {one}" for one in answers if one not in waiting]
            waiting = [one for one in waiting if one not in answers]
        else:
            problems += [f"{place}: {one} is unanswered" for one in waiting]
            waiting = calls_in(message)
    return problems


def is_human(message: Message) -> bool:
    return message["role"] == "user" and message["metadata"].get("source") != "hook" and own_words(message) != []


def own_words(message: Message) -> Any:
    """The content of a message without the tool results in it."""
    content = message["content"]
    return [block for block in content if block["type"] != "tool_result"] if isinstance(content, list) else content


def without_notice(view: list[Message]) -> list[Message]:
    return [message for message in view if not is_notice(message)]


def origin_of(message: Message, history: list[Message]) -> int | None:
    """The place in the history of the message that a view shows, also in a shorter form; None for a stand-in."""
    if (message.get("metadata") or {}).get("synthetic"):
        return None
    stamp = message["metadata"]["timestamp"]
    return next(place for place, other in enumerate(history) if other["metadata"]["timestamp"] == stamp)


def numbered(messages: list[Message]) -> list[Message]:
    """The messages with a timestamp each of its own, by which a rewritten one is recognised."""
    return [
        {**message, "metadata": {**message.get("metadata", {}), "timestamp": f"{place:05d}"}}
        for place, message in enumerate(messages)
    ]


async def views_of(context: CompactingContext, messages: list[Message], ask: list[bool]) -> list[list[Message]]:
    views = []
    for message, is_asked in zip(messages, ask, strict=True):
        await context.add_message(message)
        if is_asked:
            views.append(await context.get_messages_for_request())
    return [*views, await context.get_messages_for_request()]


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


@given(messages=conversations, config=settings, data=st.data())
def test_no_view_splits_a_pair_or_loses_what_must_stay(
    messages: list[Message], config: dict[str, Any], data: st.DataObject
) -> None:
    messages = numbered(messages)
    given_messages = copy.deepcopy(messages)
    ask = data.draw(st.lists(st.booleans(), min_size=len(messages), max_size=len(messages)))
    context = CompactingContext(**config)

    views = run(views_of(context, messages, ask))

    assert messages == given_messages
    assert run(context.get_messages()) == given_messages
    for view in views:
        assert broken_pairs(view) == []
    last = without_notice(views[-1])
    systems = [message for message in messages if message["role"] == "system"]
    assert [message for message in last if message["role"] == "system"] == systems
    humans = [message for message in messages if is_human(message)]
    if humans:
        assert own_words(humans[-1]) in [own_words(message) for message in last]
    assert all(m in last for m in messages if m["metadata"].get("openai:tool_search_items"))


@given(messages=conversations, config=settings)
def test_a_view_fits_the_budget_or_says_that_it_does_not(messages: list[Message], config: dict[str, Any]) -> None:
    context = CompactingContext(**config)

    view = run(views_of(context, messages, [False] * len(messages)))[-1]

    stats = context.compaction_stats
    fits = estimate_messages(view, config["image_token_estimate"]) <= config["max_tokens"]
    assert fits or (stats is not None and stats["over_budget"])


@given(messages=conversations, config=settings)
def test_messages_outside_of_tool_groups_keep_their_order(messages: list[Message], config: dict[str, Any]) -> None:
    messages = numbered(messages)
    context = CompactingContext(**config)

    view = without_notice(run(views_of(context, messages, [False] * len(messages)))[-1])

    heads = [origin_of(message, messages) for message in view if not answers_in(message)]
    assert heads == sorted(place for place in heads if place is not None)


@given(messages=conversations, config=settings, data=st.data())
def test_what_was_decided_stays_and_the_beginning_of_a_view_with_it(
    messages: list[Message], config: dict[str, Any], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(messages)))
    context = CompactingContext(**config)
    first = without_notice(run(views_of(context, messages[:cut], [False] * cut))[-1])
    waits_for_results = missing_results(messages[:cut])
    stats = context.compaction_stats

    later = without_notice(run(views_of(context, messages[cut:], [False] * (len(messages) - cut)))[-1])

    counts = ("messages_removed", "messages_truncated", "user_messages_stubbed")
    has_escalated = {key: (context.compaction_stats or {}).get(key, 0) for key in counts} != {
        key: (stats or {}).get(key, 0) for key in counts
    }
    late_results = {one for message in messages[cut:] for one in answers_in(message)}
    if not has_escalated and not waits_for_results and not late_results:
        assert later[: len(first)] == first
        assert all(one is other for one, other in zip(first, later, strict=False))


@given(messages=conversations, config=settings)
def test_asking_twice_gives_equal_lists_that_are_not_the_same(messages: list[Message], config: dict[str, Any]) -> None:
    context = CompactingContext(**config)
    first = run(views_of(context, messages, [False] * len(messages)))[-1]

    second = run(context.get_messages_for_request())

    assert first == second
    assert first is not second


@given(messages=conversations, config=settings, data=st.data())
def test_a_view_that_grew_with_the_history_is_the_one_of_the_whole_history(
    messages: list[Message], config: dict[str, Any], data: st.DataObject
) -> None:
    config = {**config, "auto_compact": False}
    ask = data.draw(st.lists(st.booleans(), min_size=len(messages), max_size=len(messages)))
    messages = numbered(messages)
    grown, whole = CompactingContext(**config), CompactingContext(**config)
    run(whole.set_messages(messages))

    assert run(views_of(grown, messages, ask))[-1] == run(whole.get_messages_for_request())
