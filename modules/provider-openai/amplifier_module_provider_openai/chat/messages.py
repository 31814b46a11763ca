"""Messages in the form of the Chat Completions API."""

from collections.abc import Iterable, Sequence
from typing import Any

from amplifier_kit.providers.messages import NormalMessage, NormalResult
from amplifier_module_provider_openai import tools
from amplifier_module_provider_openai.conversation import ConversationConverter, Item, WireForm, WireMessage

_LONGEST_ID = 40


class MessageConverter:
    """Converts messages, each once."""

    def __init__(self) -> None:
        self._form = ChatForm()
        self._converter = ConversationConverter(self._form)

    def convert(self, messages: Sequence[NormalMessage], *, has_vision: bool) -> tuple[list[Item], frozenset[str]]:
        """Return the messages to send, and the kinds of blocks that got lost on the way."""
        conversation = self._converter.convert(messages, has_vision=has_vision)
        said: list[Item] = []
        images: list[Item] = []
        for message in conversation.said:
            if message.items and message.items[0]["role"] != "tool":
                self._add_images(said, images)
            said += message.items
            images += message.images
        self._add_images(said, images)
        instructions = conversation.instructions
        first: list[Item] = [{"role": "system", "content": instructions}] if instructions else []
        return first + conversation.developer + said, conversation.lost

    def _add_images(self, said: list[Item], images: list[Item]) -> None:
        """Add the images of the results before, now that all of the calls are answered."""
        if images:
            said.append(self._form.user([self._form.text_part("Images of the tool results:"), *images]))
            images.clear()


class ChatForm(WireForm):
    """The form of the Chat Completions API."""

    def text_part(self, text: str) -> Item:
        return {"type": "text", "text": text}

    def image_part(self, url: str) -> Item:
        return {"type": "image_url", "image_url": {"url": url}}

    def user(self, parts: list[Item]) -> Item:
        content: Any = parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
        return {"role": "user", "content": content}

    def assistant(self, message: NormalMessage) -> Iterable[Item]:
        calls = [
            {
                "id": tools.call_id(call["id"], _LONGEST_ID),
                "type": "function",
                "function": {"name": tools.tool_name(call["name"]), "arguments": tools.arguments_text(call["input"])},
            }
            for call in message.calls
        ]
        text = message.text
        if not text and not calls:
            return ()
        said: Item = {"role": "assistant", "content": text or None}
        return ({**said, "tool_calls": calls} if calls else said,)

    def results(self, results: Sequence[NormalResult], *, has_vision: bool) -> WireMessage:
        messages: list[Item] = []
        images: list[Item] = []
        lost: frozenset[str] = frozenset()
        for result in results:
            parts, lost_here = self.parts(result.images, has_vision=has_vision)
            lost |= lost_here
            texts = [result.text, *(part["text"] for part in parts if part["type"] == "text")]
            images += [part for part in parts if part["type"] != "text"]
            call_id = tools.call_id(result.call_id, _LONGEST_ID)
            content = "\n".join(filter(None, texts))
            messages.append({"role": "tool", "tool_call_id": call_id, "content": content})
        return WireMessage(tuple(messages), tuple(images), lost)
