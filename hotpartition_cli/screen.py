"""Where responses go: tables or JSON on standard output, sentences about trouble on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hotpartition_cli.errors import FailedError, ToolError
from hotpartition_cli.outcomes import Outcome, Progress

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PIPED_WIDTH = 120
"""Columns of a table outside a terminal."""


class Screen:
    """Prints what a command shows and says. rich is imported where a person reads it: programs get JSON without it."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def open(self) -> Console:
        """Open the console of tables."""
        from rich.console import Console  # noqa: PLC0415 - see above

        return Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)

    def show(self, command: str, outcome: Outcome) -> None:
        """Print a response."""
        if self.as_json:
            print(json.dumps(outcome.document), flush=True)
            return
        from rich.console import Group  # noqa: PLC0415 - see above
        from rich.text import Text  # noqa: PLC0415 - see above

        from hotpartition_cli.views import VIEWS  # noqa: PLC0415 - see above

        console = self.open()
        view = VIEWS[command](outcome.document)
        for part in view.renderables if isinstance(view, Group) else [view]:
            # In a file or a pipe a sentence stays one line, so that it can be searched for.
            console.print(part, soft_wrap=isinstance(part, Text) and not console.is_terminal)

    def finish(self, command: str, outcome: Outcome) -> int:
        """Print a response and what was missing from it, and return its status."""
        self.show(command, outcome)
        # The table of `hot` says it itself.
        if outcome.complaint and (self.as_json or command not in {"hot", "watch"}):
            self.warn(outcome.complaint)
        return outcome.status

    @contextmanager
    def renewed(self) -> Iterator[Callable[[Outcome | FailedError], None]]:
        """Show what is hot again and again, or why a look failed: in a terminal in one place."""
        if self.as_json or not sys.stdout.isatty():
            yield lambda look: self.complain(look) if isinstance(look, FailedError) else self.show("watch", look)
            return
        from rich.live import Live  # noqa: PLC0415 - see above
        from rich.text import Text  # noqa: PLC0415 - see above

        from hotpartition_cli.views import view_hot  # noqa: PLC0415 - see above

        def draw(look: Outcome | FailedError) -> RenderableType:
            return Text(f"hotpartition: {look}", "red") if isinstance(look, FailedError) else view_hot(look.document)

        with Live(console=self.open(), auto_refresh=False) as live:
            yield lambda look: live.update(draw(look), refresh=True)

    def say(self, sentence: str) -> None:
        """Print a sentence beside the response, as it is."""
        print(f"hotpartition: {sentence}", file=sys.stderr, flush=True)

    def warn(self, sentence: str) -> None:
        """Print a sentence that a person should not miss."""
        red, plain = ("\x1b[31m", "\x1b[0m") if sys.stderr.isatty() else ("", "")
        print(f"{red}hotpartition: {sentence}{plain}", file=sys.stderr, flush=True)

    def complain(self, error: ToolError) -> None:
        """Print an error instead of a response: a sentence for a person, and an object for a program."""
        self.warn(str(error))
        if self.as_json:
            print(json.dumps({"error": {"kind": error.kind, "message": str(error)}}), flush=True)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Show the progress of a long command, on a terminal."""
        if self.as_json or not sys.stderr.isatty():
            yield lambda _: None
            return
        from rich.console import Console  # noqa: PLC0415 - see above
        from rich.text import Text  # noqa: PLC0415 - see above

        with Console(stderr=True, highlight=False).status("working") as status:
            yield lambda sentence: status.update(Text(sentence))
