"""What the model is told about a compacted conversation."""

from amplifier_kit.types import Config, Message

from .settings import HIGHEST_LEVEL
from .units import COMPACTION_SOURCE

_STATEMENT = "Earlier parts of this conversation were compacted to fit the model's context window."
_NORMAL = """
- level: {strategy_level}/{highest_level}
- messages: {before_messages} before, {after_messages} after
- removed: {messages_removed}, user messages stubbed: {user_messages_stubbed}, \
tool results truncated: {messages_truncated}
- tokens: about {before_tokens} before, {after_tokens} after, target {target_tokens}
- preserved: system messages ({system_messages_preserved}), the first and the latest user message, recent messages
- may be missing: older replies, tool calls with their results, the full text of older user messages
If something you need is missing, call the tool again or ask the user."""
_VERBOSE = """
- protection: the newest {protected_recent:.0%} of the messages, the newest {protected_tool_results} tool results
- budget: {budget} tokens"""

_TEXTS = {"minimal": _STATEMENT, "normal": _STATEMENT + _NORMAL, "verbose": _STATEMENT + _NORMAL + _VERBOSE}


def compaction_notice(stats: Config, verbosity: str) -> Message:
    """Return the message that ends a compacted view; `stats` are those of the event `context:compaction`."""
    text = _TEXTS[verbosity].format(**stats, highest_level=HIGHEST_LEVEL)
    return {
        "role": "user",
        "content": f'<system-reminder source="{COMPACTION_SOURCE}">\n{text}\n</system-reminder>',
        "metadata": {"source": COMPACTION_SOURCE, "ephemeral": True},
    }
