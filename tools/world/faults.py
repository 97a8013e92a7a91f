"""What goes wrong, and when: at random moments, of random kinds, all from the run's seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from hotpartition.core.route import Close, Generation
from tools.world.clock import EPOCH_MS, Process
from tools.world.functions import Function
from tools.world.network import StoreFaults
from tools.world.product import World

INVENTED_CLOSES = 0.4


@dataclass(slots=True)
class FaultDriver:
    """Strikes by its world's plan until it is stopped; then everything is well again."""

    world: World
    functions: Sequence[Function]
    random: Random
    _is_over: bool = False
    _spells: int = 0

    def start(self) -> None:
        """Begin."""
        plan = self.world.plan
        self.world.store.faults = plan.store
        self.world.redis.lost = plan.redis_lost
        self.world.store.after_update = lambda process: self._crash_consumer(process, "journal")
        self.world.redis.after_route = lambda process: self._crash_consumer(process, "registry")
        for rate, strike in (
            (plan.redis_outages, self._take_redis_down),
            (plan.redis_failovers, self._fail_over),
            (plan.redis_emptyings, self._empty),
            (plan.redis_slowness, self._slow_down),
            (plan.redis_scribbles, self._scribble),
            (plan.stream_trims, self._trim),
            (plan.consumer_kills, self._kill_consumer),
            (plan.environment_kills, self._kill_environment),
            (plan.store_spells, self._begin_spell),
        ):
            self._plan_next(rate, strike)

    def stop(self) -> None:
        """End all faults."""
        self._is_over = True
        self.world.store.faults = StoreFaults()
        self.world.redis.lost = 0.0
        for node in self.world.redis.nodes:
            node.recover()

    def all_struck(self) -> tuple[tuple[str, int], ...]:
        """List how often each fault struck, DynamoDB's and those of environments included."""
        died = sum(function.deaths for function in self.functions)
        return tuple(sorted({**self.world.meter.struck, "environment died in a request": died}.items()))

    def _plan_next(self, rate: float, strike: Callable[[], None]) -> None:
        def happen() -> None:
            if not self._is_over:
                strike()
                self._plan_next(rate, strike)

        self.world.engine.after(self.random.expovariate(rate), happen)

    def _take_redis_down(self) -> None:
        self.world.meter.struck["redis outage"] += 1
        is_hanging, forgets = self.random.random() < 0.4, self.random.random() < 0.5
        lost, seconds = self.random.random() * 2.0, self.random.uniform(0.3, 5.0)
        nodes = self.world.redis.some_nodes(self.random)
        for node in nodes:
            node.is_hanging, node.is_down = is_hanging, not is_hanging

        def bring_back() -> None:
            for node in nodes:
                if forgets:
                    node.fail_over(lost)
                node.recover()

        self.world.engine.after(seconds, bring_back)

    def _fail_over(self) -> None:
        self.world.meter.struck["redis failover"] += 1
        lost = self.random.random() * 4.0
        for node in self.world.redis.some_nodes(self.random):
            node.fail_over(lost)

    def _empty(self) -> None:
        self.world.meter.struck["redis emptied"] += 1
        for node in self.world.redis.some_nodes(self.random):
            node.empty()

    def _slow_down(self) -> None:
        self.world.meter.struck["redis slow"] += 1
        seconds = self.random.uniform(0.005, 0.05)
        nodes = self.world.redis.some_nodes(self.random)
        for node in nodes:
            node.extra_seconds = seconds

        def end() -> None:
            for node in nodes:
                node.extra_seconds = 0.0

        self.world.engine.after(self.random.uniform(0.5, 3.0), end)

    def _scribble(self) -> None:
        """Write what is none of ours under some of our keys."""
        keys = self.world.redis.named_keys()
        if not keys:
            return
        routes = [key for key in keys if ":route:" in key]
        kinds = [self._invent, self._scatter_bytes, self._change_type]
        kinds[self.random.randrange(len(kinds))](self._some(routes or keys), self._some(keys))

    def _some(self, keys: Sequence[str]) -> Sequence[str]:
        return self.random.sample(keys, min(len(keys), 1 + self.random.randrange(4)))

    def _invent(self, routes: Sequence[str], _: Sequence[str]) -> None:
        self.world.meter.struck["redis invents generations and closes"] += 1
        now_ms = self.world.engine.now_ms()
        for key in routes:
            since_ms = now_ms + round(self.random.uniform(-10_000.0, 2_000.0))
            is_close = self.random.random() < INVENTED_CLOSES
            invented = Close(since_ms, True) if is_close else Generation(since_ms, self.random.randint(2, 24))
            self.world.redis.do("SADD", key, invented.encode())

    def _scatter_bytes(self, routes: Sequence[str], keys: Sequence[str]) -> None:
        self.world.meter.struck["redis holds bytes"] += 1
        noise = self.random.randbytes(8) + b"\xff\xfe"
        for key in routes:
            self.world.redis.do("SADD", key, noise, b"7@\xff")
        for key in keys:
            if ":reports:" in key:
                for name, value in ((b"r", b"2|" + noise), (noise, noise), (b"r", noise)):
                    self.world.redis.do("XADD", key, "*", name, value)

    def _change_type(self, routes: Sequence[str], keys: Sequence[str]) -> None:
        self.world.meter.struck["redis changes types"] += 1
        for key in (routes[0], *keys):
            self.world.redis.do("DEL", key)
            self.world.redis.do("RPUSH", key, "foreign")
            self.world.engine.after(self.random.uniform(0.3, 5.0), partial(self._take_away, key))

    def _take_away(self, key: str) -> None:
        """Remove what is of another type, if nothing took its place."""
        if self.world.redis.do("TYPE", key) == b"list":
            self.world.redis.do("DEL", key)

    def _trim(self) -> None:
        self.world.meter.struck["stream trimmed"] += 1
        oldest_ms = EPOCH_MS + int((self.world.engine.now - self.random.random()) * 1000)
        nodes = self.world.redis.some_nodes(self.random)
        for key in self.world.redis.named_keys():
            if ":reports:" in key and self.world.redis.node_of(key) in nodes:
                self.world.redis.do("XTRIM", key, "MINID", oldest_ms)

    def _kill_consumer(self) -> None:
        consumers = self.world.watchers
        if consumers is not None and consumers.kill_one():
            self.world.meter.struck["consumer killed"] += 1

    def _crash_consumer(self, process: Process, place: str) -> None:
        consumers = self.world.watchers
        if consumers is not None and not self._is_over and self.random.random() < self.world.plan.consumer_crash:
            self.world.meter.struck[f"consumer killed just after it wrote to the {place}"] += 1
            consumers.kill(process)

    def _kill_environment(self) -> None:
        function = self.functions[self.random.randrange(len(self.functions))]
        if function.kill_one():
            self.world.meter.struck["environment killed"] += 1

    def _begin_spell(self) -> None:
        self.world.meter.struck["dynamodb bad spell"] += 1
        self._spells += 1
        mine = self._spells
        self.world.store.faults = self.world.plan.spell

        def end() -> None:
            if not self._is_over and self._spells == mine:
                self.world.store.faults = self.world.plan.store

        self.world.engine.after(self.random.uniform(0.5, 4.0), end)
