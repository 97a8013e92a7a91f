"""A `PageStore` in memory, as strict as Redis: what is kept for a time is gone after it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hotpartition.core.errors import RegistryUnavailableError
from hotpartition.core.freshness import COPIES
from hotpartition.core.ports import StoredPage


@dataclass
class FakePageStore:
    """Pages and leases of a fleet, on a clock of Redis's own; `is_down` makes every call fail, `is_full` every write.

    `calls` lists what was asked for; `on_call` runs before every call and may change the world.
    """

    now_ms: Callable[[], float]
    is_down: bool = False
    is_full: bool = False
    pages: dict[tuple[str, str, int], StoredPage] = field(default_factory=dict)
    leases: dict[tuple[str, str], float] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    on_call: Callable[[str], None] = lambda _: None

    def _call(self, name: str, *, writes: bool = False) -> None:
        self.calls.append(name)
        self.on_call(name)
        if self.is_down or (writes and self.is_full):
            raise RegistryUnavailableError("down" if self.is_down else "OOM command not allowed")

    def get(self, collection: str, variant: str, copy: int) -> tuple[StoredPage, int] | None:
        self._call(f"get {copy}")
        page = self.pages.get((collection, variant, copy))
        age_ms = 0 if page is None else int(self.now_ms()) - page.leased_at_ms
        return None if page is None or age_ms >= page.keep_ms else (page, age_ms)

    def put(self, collection: str, variant: str, page: StoredPage) -> None:
        self._call("put", writes=True)
        for copy in range(COPIES):
            self.pages[collection, variant, copy] = page

    def take_lease(self, collection: str, variant: str, lease_ms: int) -> int | None:
        self._call("lease", writes=True)
        if self.now_ms() < self.leases.get((collection, variant), 0.0):
            return None
        self.leases[collection, variant] = self.now_ms() + lease_ms
        return int(self.now_ms())
