"""Whether a collection is read-hot, from the fleet's reports: a pure function."""

from __future__ import annotations

MAX_COPIES = 64
"""Copies of one page that are ever decided on; each of them is written whenever the page is read anew."""
