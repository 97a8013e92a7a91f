"""What the tests of the engine share."""

from collections.abc import Callable


def failing(
    calls: str | tuple[str, ...], *failures: Exception, always: Exception | None = None
) -> Callable[[str], None]:
    """Build a table's `on_call`: calls that begin so raise the failures, one each; then `always`, if there is one."""
    left = [*failures]

    def fail(call: str) -> None:
        if call.startswith(calls) and (failure := left.pop(0) if left else always):
            raise failure

    return fail
