"""What the tests of the engine share."""

from collections.abc import Callable
from typing import Any

from hotpartition.core.errors import StoreUnavailableError
from support.builders import World


def failing(
    calls: str | tuple[str, ...], *failures: Exception, always: Exception | None = None
) -> Callable[[str], None]:
    """Build a table's `on_call`: calls that begin so raise the failures, one each; then `always`, if there is one."""
    left = [*failures]

    def fail(call: str) -> None:
        if call.startswith(calls) and (failure := left.pop(0) if left else always):
            raise failure

    return fail


def lose_next_response(world: World, *, then: Callable[[Any], object] = lambda _: None) -> None:
    """Store the next item that is put, do something, and give no response."""
    original = world.table.create

    def create(item: Any) -> None:
        original(item)
        world.table.create = original
        then(item)
        raise StoreUnavailableError("read timeout")

    world.table.create = create
