"""A session whose conversation, events and requests are stored, as the session runtime does it."""

from typing import Any

from amplifier_core import AmplifierSession, ChatResponse
from amplifierd.sessions.conversation.message_digest import TranscriptIndex
from amplifierd.sessions.layers.calls import CallLayer, ProviderCall, ProviderStep
from amplifierd.sessions.layers.request_parts import RequestRecorder
from amplifierd.store.hold import Hold, Holder
from amplifierd.store.protocol import NewSession, SessionStore
from amplifierd.store.record import SessionRecord, now

SESSION_ID = "recorded"


class Journal(CallLayer):
    """Writes a session's messages and events into a store, and knows the layer that records requests."""

    def __init__(self, store: SessionStore, hold: Hold) -> None:
        self._store, self._hold = store, hold
        self._seq = self._written = 0
        self._session: AmplifierSession | None = None
        self.index = TranscriptIndex()
        self.recorder = RequestRecorder(self.append, self.put_parts, self.index, find_injector=self._find_injector)
        self.appended_bytes: list[int] = []

    @classmethod
    async def begin(cls, store: SessionStore) -> "Journal":
        record = SessionRecord(session_id=SESSION_ID, working_dir="/nowhere", created_at=now())
        return cls(store, await store.create(NewSession(record, {}), Holder.of_this_process("test")))

    def watch(self, session: AmplifierSession) -> None:
        self._session = session

    async def append(self, event: str, data: dict[str, Any], **options: Any) -> None:
        self._seq += 1
        self.appended_bytes.append(len(str(data)))
        line = {"seq": self._seq, "ts": now(), "event": event, "session_id": SESSION_ID, "data": data}
        await self._store.append_events(self._hold, [line])

    async def put_parts(self, parts: Any) -> None:
        await self._store.put_parts(self._hold, parts)

    async def flush(self) -> None:
        """Write what the conversation has gained."""
        assert self._session is not None
        messages = await self._session.coordinator.get("context").get_messages()
        for message in [one for one in messages if _is_said(one)][self._written :]:
            self._written += 1
            line = {**message, "id": f"m{self._written}", "timestamp": now(), "turn": self.recorder.turn}
            if (message.get("metadata") or {}).get("source") == "hook":
                line["role"], line["metadata"] = "system", {**message["metadata"], "requested_role": message["role"]}
            await self._store.append_messages(self._hold, [line])
            self.index.add(line)

    async def provider_call(self, call: ProviderCall, proceed: ProviderStep) -> ChatResponse:
        await self.flush()
        return await proceed(call)

    def _find_injector(self, text: str) -> tuple[str, str] | None:
        assert self._session is not None
        return self._session.coordinator.find_injector(text)


def _is_said(message: dict[str, Any]) -> bool:
    is_injected = (message.get("metadata") or {}).get("source") == "hook"
    return is_injected or message["role"] in ("user", "assistant", "tool")
