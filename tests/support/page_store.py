"""A `PageStore` in memory, as strict as Redis: what is kept for a time is gone after it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hotpartition.errors import RegistryUnavailableError
from hotpartition.ports import StoredPage


@dataclass
class FakePageStore:
    """Pages and leases of a fleet, on a clock of Redis's own; `is_down` makes every call fail, `is_full` every write.

    `calls` lists what was asked for; `on_call` runs before every call and may change the world.
    """

    now_ms: Callable[[], float]
    is_down: bool = False
    is_full: bool = False
    pages: dict[tuple[str, str, int], tuple[StoredPage, float]] = field(default_factory=dict)
    leases: dict[tuple[str, str], float] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    on_call: Callable[[str], None] = lambda _: None

    def _call(self, name: str, *, writes: bool = False) -> None:
        self.calls.append(name)
        self.on_call(name)
        if self.is_down or (writes and self.is_full):
            raise RegistryUnavailableError("down" if self.is_down else "OOM command not allowed")

    def get(self, collection: str, variant: str, copy: int) -> StoredPage | None:
        self._call(f"get {copy}")
        page, until_ms = self.pages.get((collection, variant, copy), (None, 0.0))
        return page if self.now_ms() < until_ms else None

    def put(self, collection: str, variant: str, page: StoredPage, *, copies: int, keep_ms: int) -> None:
        self._call("put", writes=True)
        for copy in range(copies):
            self.pages[collection, variant, copy] = page, self.now_ms() + keep_ms

    def take_lease(self, collection: str, variant: str, lease_ms: int) -> bool:
        self._call("lease", writes=True)
        if self.now_ms() < self.leases.get((collection, variant), 0.0):
            return False
        self.leases[collection, variant] = self.now_ms() + lease_ms
        return True
