"""The cached form of pages of messages: JSON of the stored items, without their partition keys."""

from __future__ import annotations

import json

from hotpartition.core.errors import MalformedPageError
from hotpartition.core.merge import Page
from hotpartition_messages.messages import Message


class MessagePageCodec:
    """`PageCodec` of pages of messages."""

    def encode(self, page: Page[str, Message]) -> str:
        """Implement `PageCodec.encode`."""
        document = {
            "items": [message.to_attributes() for message in page.items],
            "hidden": [message.to_attributes() for message in page.hidden],
            "has_more": page.has_more,
            "last": page.last,
        }
        return json.dumps(document, separators=(",", ":"))

    def decode(self, text: str) -> Page[str, Message]:
        """Implement `PageCodec.decode`."""
        try:
            document = json.loads(text)
            return Page(
                items=tuple([Message.from_item(item) for item in document["items"]]),
                has_more=document["has_more"],
                divergent=0,
                last=document["last"],
                hidden=tuple([Message.from_item(item) for item in document["hidden"]]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedPageError(f"no page of messages: {error!r}") from error
