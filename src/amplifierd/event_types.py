"""The events that are known by name: a client can be told of them before any has happened."""

from __future__ import annotations

from amplifier_core import events

MODULE_EVENTS = (
    "provider:throttle",
    "provider:resolve",
    "provider:tool_sequence_repaired",
    "llm:stream_block_start",
    "llm:stream_block_delta",
    "llm:stream_block_end",
    "llm:stream_aborted",
    "content_block:start",
    "content_block:delta",
    "content_block:end",
    "thinking:delta",
    "thinking:final",
    "context:compaction",
    "context:include",
    "policy:violation",
    "approval:required",
    "approval:granted",
    "approval:denied",
    "delegate:agent_spawned",
    "delegate:agent_resumed",
    "delegate:agent_completed",
    "delegate:agent_cancelled",
    "delegate:error",
    "delegate:model_role_unresolved",
    "session-naming:set",
    "session-naming:deferred",
    "session-naming:timeout",
    "session-naming:error",
    "apply-patch:applied",
    "mentions:resolved",
    "module:on_session_ready_failed",
    "orchestrator:steering_injected",
    "orchestrator:rate_limit_delay",
    "session:config",
    "session:tainted",
)
"""Events of modules that may not say that they emit them."""

DAEMON_EVENTS = (
    *("stream:connected", "stream:gap", "stream:overflow", "stream:error"),
    *("session:created", "session:updated", "session:deleted", "session:restored", "session:status"),
    *("session:profile_changed", "session:stale", "session:repaired", "session:taken_over"),
    *("user_message:saved", "assistant_message:start", "assistant_message:partial", "assistant_message:complete"),
    *("message:deleted", "mention:unresolved", "display:message", "display:shown"),
    *("execution:queued", "execution:done"),
    *("approval:pending", "approval:resolved", "approval:expired"),
    *("tool:intent", "tool:outcome", "request:stored", "response:stored"),
    *("budget:warning", "budget:exhausted"),
    *("checkpoint:taken", "checkpoint:incomplete", "checkpoint:unavailable"),
    *("collection:synced", "profile:compiled", "profile:stale", "operation:updated"),
    *("settings:changed", "daemon:ready", "daemon:shutdown"),
)
"""Events of the runtime and of the daemon themselves."""

EVENT_TYPES = tuple(sorted({*events.ALL_EVENTS, *MODULE_EVENTS, *DAEMON_EVENTS}))
