"""The messages API: its requests and responses, over HTTP."""

from hotpartition_messages.messages import Message

__all__ = ["Message"]
