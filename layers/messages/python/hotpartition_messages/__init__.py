"""The messages API: what clients send and get, over HTTP."""

from hotpartition_messages.messages import Message

__all__ = ["Message"]
