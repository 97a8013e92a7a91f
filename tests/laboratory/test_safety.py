"""Runs under all faults: nothing is lost, each way of breaking the product is found, and a seed is always the same."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache, partial
from math import inf

import pytest

from hotpartition.core.route import stable_hash
from hotpartition.dynamodb.counter_store import DynamoDBCounterStore
from hotpartition.engine.counters import Adder, Summer
from hotpartition.engine.read_cache import ReadCache
from hotpartition.engine.registry_routes import RegistryRoutes
from hotpartition.table import item_calls
from hotpartition.table.schema import CHANGES
from hotpartition_messages import writing
from support.protocol_mutations import CHANGE_MUTATIONS, MUTATIONS, TRUSTING, break_product
from tools.figures import Outcome, plain
from tools.scenarios import counter_faults, read_rush
from tools.scenarios.counter_faults import run_tokens
from tools.scenarios.message_faults import HUNT
from tools.scenarios.read_rush import ReadRush, run_rush
from tools.scenarios.table_faults import build_fault_plan
from tools.scenarios.table_faults import run as run_table
from tools.world.record import Record
from tools.world.run import simulate
from tools.world.scenario import HOT, Changes, Readers
from tools.world.strategies import ours
from tools.world.workload import stepping

pytestmark = pytest.mark.slow

BUSY = replace(
    HUNT,
    changes=replace(HUNT.changes, per_second=150.0, again_share=0.7, deletions=0.4),
    readers=replace(HUNT.readers, per_second=20.0),
    seconds=6.0,
)
POLLED = replace(
    HUNT,
    faults=None,
    changes=Changes(),
    flows=(stepping(HOT, loads=(2.0, 30.0), between=(1.0, inf), body_bytes=(20, 600), age_seconds=(0.0, 4.5)),),
    readers=Readers(poll_limits=(1, 50)),
)
"""A conversation that is hot at once, written late and polled with small and usual pages; nothing fails."""
NAMELESS = replace(
    HUNT,
    seconds=3.0,
    clients=replace(HUNT.clients, minting_share=0.0),
    writers=replace(HUNT.writers, death=0.1),
)
"""The server mints all ids, and often dies before it names them."""
RUSH = ReadRush(name="small", description="A fiftieth.", seconds=3.0, copies=3, scale=0.02, writes_per_second=1_000.0)


def run_messages(seed, scenario=HUNT, **more):
    return simulate(scenario, seed, ours(), **more)


RUNS = {
    "messages": run_messages,
    "messages that are polled": partial(run_messages, scenario=POLLED),
    "messages without ids": partial(run_messages, scenario=NAMELESS),
    "counters": partial(run_tokens, additions=400),
    "a short hunt": partial(run_messages, scenario=replace(HUNT, seconds=3.0)),
    "tables": partial(run_table, seconds=7.0),
    "tables in band": partial(run_table, is_in_band=True, seconds=8.0),
    "tables that are folded": partial(run_table, folds=True, seconds=6.0),
    "a short table": partial(run_table, seconds=2.0),
    "reads": lambda seed: run_rush(RUSH, seed),
}


@cache
def played(name, seed):
    return RUNS[name](seed)


def breaches_of(run):
    """List the kinds of breaches of a run of any scenario."""
    if hasattr(run, "safety"):
        return {fault for fault, count in run.safety.found.items() if count}
    return {breach.fault for breach in run.breaches}


def counted(run):
    """List everything that a run counts, and how many there are of what it lists."""
    parts = [run, getattr(run, "safety", Outcome())]
    facts = {name: fact for part in parts for name, fact in vars(part).items()}
    facts |= {**getattr(run, "counts", {}), **dict(run.faults)}
    return {name: len(fact) if isinstance(fact, tuple) else fact for name, fact in facts.items()}


USUAL = {"dynamodb late": 1, "dynamodb lost answer": 1, "dynamodb server error": 1}
CUT = {f"dynamodb {name}": 1 for name in ("refused key", "short page", "unprocessed")}
DONE = dict.fromkeys(("created", "changed", "deleted", "reads", "raises", "sharded_items"), 1)
REMOVED = {"dynamodb transactions of several items": 1, "dynamodb removals of expired items": 1}
BOUND = {"dynamodb answered IdempotentParameterMismatchException": 1}


@pytest.mark.parametrize(
    ("name", "seed", "at_stake"),
    [
        ("messages", 1, {"acknowledged": 301, "reads": 101, "raises": 1, **REMOVED}),
        # However long a walk over the pages takes, and however late writes are acknowledged.
        ("messages that are polled", 1, {"acknowledged": 201, "reads": 4}),
        ("messages without ids", 4, {"acknowledged": 101, "reads": 21}),
        # A cancelled transaction binds its token in odd seeds, and leaves it free in even ones.
        ("counters", 1, {"attempts": 401, "reads": 2, "raises": 2, **USUAL, **BOUND}),
        ("counters", 2, {}),
        # Journal and items in one table, positions, and shards by an attribute.
        ("tables", 1, {**DONE, **USUAL, **CUT}),
        # Environments raise what they find hot, on load items that get lost, while the journal is throttled.
        ("tables in band", 2, {"dynamodb refused key": 1}),
        # By two processes at a time that are killed and started again.
        ("tables that are folded", 6, {"moved": 11, "folds_killed": 1}),
    ],
)
def test_everything_goes_wrong_and_nothing_is_lost(name, seed, at_stake):
    """Doubled, undone or altered; and so much was at stake, at least."""
    run = played(name, seed)
    assert breaches_of(run) == set()
    facts = counted(run)
    assert {fact: facts.get(fact) for fact, least in at_stake.items() if facts.get(fact, 0) < least} == {}


SHORT = [("a short hunt", 5), ("counters", 1), ("a short table", 3), ("reads", 1)]


def say_short_runs():
    return json.dumps([played(name, seed) for name, seed in SHORT], default=plain)


def test_a_run_is_a_function_of_its_seed():
    """Another process, which hashes texts differently, comes to the same JSON, whatever ran before it in this one."""
    hash_seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    paths = os.pathsep.join(path for path in sys.path if path)
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths}
    script = "from laboratory.test_safety import say_short_runs; print(say_short_runs())"
    elsewhere = subprocess.run([sys.executable, "-c", script], env=environ, check=True, capture_output=True, text=True)
    assert elsewhere.stdout.strip() == say_short_runs()
    assert played("a short hunt", 5) != Outcome(**vars(played("a short hunt", 6)) | {"seed": 5})


def take_word(_, collection, shown, *, hint=None, is_strong=False):
    """Take Redis's word for a route when it is read: Redis loses routes and gets others late."""
    return shown.route if hint is None else hint


add_once, init_summer, get_page = DynamoDBCounterStore.add_once, Summer.__init__, ReadCache.get
add_clause = item_calls.add_clause


def add_with_place(store, place, addition):
    """Make DynamoDB's token of the place, too: a repetition elsewhere is another transaction."""
    token = f"{addition.request_token[:20]}{stable_hash(place) % 10**9}"
    return add_once(store, place, addition._replace(request_token=token))


def believe(_, collection, addition, budget):
    """Take a bound token for a counted addition, where a cancelled transaction binds it: additions are lost."""


def sum_what_redis_shows(summer, gatherer, **options):
    """Trust the routes in Redis, which loses some and gets others late: sums lack shards."""
    init_summer(summer, gatherer, **options)
    gatherer.has_journal = False


def count_no_change(request, addition, names, values=()):
    """A creation's first attempt arrives when the second one has been changed already, at another place."""
    values = [0 if name == CHANGES else value for name, value in zip(names, values, strict=False)]
    return add_clause(request, addition, names, values)


def keep_for_ever(cache, key, load, **limits):
    """Take no notice of ages."""
    read_once = cache.__dict__.setdefault("read_once", {})
    if key not in read_once:
        read_once[key] = get_page(cache, key, load, **limits)
    return read_once[key]


def do_nothing(*_):
    """Take the place of a check, or of a note."""


def run_old(seed):
    return run_rush(replace(RUSH, seconds=5.0), seed)


UNDONE = {"resurrected", "undone"}
WRONG_SUM = {"altered", "missing", "undone", "duplicated", "phantom"}
FIRST_SEEDS = {"t2 is the present": 2, "first choices only": 5, "a writer trusts Redis": 7, "time bound reversed": 8}
"""Tried first, where the first seeds do not show it: all others follow, should the product have changed since."""
OLD_PAGES = [(ReadCache, "get", keep_for_ever)]
ASTRAY = partial(run_table, seconds=6.0, plan=build_fault_plan(redis_scribbles=4.0))
BROKEN = {
    **{
        name: (replaced, run_messages, (FIRST_SEEDS.get(name, 1), *range(1, 21)), {"missing"})
        for name, replaced in MUTATIONS.items()
    },
    **{
        name: (replaced, partial(run_messages, scenario=BUSY), range(1, 21), UNDONE)
        for name, replaced in CHANGE_MUTATIONS.items()
    },
    "an entity tag is not checked": (
        [(writing, "_check_tag", do_nothing)],
        partial(run_messages, scenario=BUSY),
        range(1, 21),
        {"misstated"},
    ),
    # Of the judge: it then takes what was stored under an id that no response named for something never offered.
    "offers without an id are forgotten": (
        [(Record, "note_nameless", do_nothing)],
        RUNS["messages without ids"],
        (4, *range(1, 9)),
        {"phantom"},
    ),
    "a table's reads trust Redis": (
        [(RegistryRoutes, "learn", take_word)],
        partial(run_table, seconds=8.0),
        range(1, 5),
        {"missing"},
    ),
    "a table's writes trust Redis": (TRUSTING, ASTRAY, (2, *range(1, 9)), {"missing", *UNDONE}),
    "changes are not counted": (
        [(item_calls, "add_clause", count_no_change)],
        partial(run_table, seconds=6.0, plan=build_fault_plan(late_share=0.5)),
        (7, 9, 12, *range(1, 9)),
        {"undone"},
    ),
    "places in tokens": (
        [(DynamoDBCounterStore, "add_once", add_with_place)],
        RUNS["counters"],
        (2, 4, 6),
        WRONG_SUM,
    ),
    "a bound token is believed": ([(Adder, "_repeat_bound", believe)], RUNS["counters"], (1, 3, 5), WRONG_SUM),
    "sums trust Redis": ([(Summer, "__init__", sum_what_redis_shows)], RUNS["counters"], (1, 2, 3), WRONG_SUM),
    # The history checker knows no ages, but what was written is lacking.
    "pages know no age": (OLD_PAGES, run_old, (1,), {"stale"}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_on_purpose_is_found(monkeypatch, name):
    """In one of some seeds at the latest."""
    replaced, run, seeds, breaches = BROKEN[name]
    break_product(monkeypatch, replaced)
    assert any(breaches_of(run(seed)) & breaches for seed in seeds)


def judge_reads(run, rush=RUSH):
    return [bar.name for bar in read_rush.bars_of(rush, run) if not bar.holds]


def test_a_few_fills_serve_a_read_hot_conversation(monkeypatch):
    """Nothing is refused, what is served is fresh, and every page is accounted for."""
    run = played("reads", 1)
    assert judge_reads(run) == []
    assert run.offered == pytest.approx(3_000, rel=0.1)
    by_origin = run.from_l1 + run.from_redis + run.from_dynamodb
    assert by_origin + run.refused == run.offered
    assert run.from_l1 > 0.5 * run.offered
    assert run.safety.reads > 0
    break_product(monkeypatch, OLD_PAGES)
    assert judge_reads(run_old(1))[-1] == "small: history checker's findings"


@pytest.mark.parametrize("watched", [False, True])
def test_without_the_cache_most_is_refused_until_it_is_found_read_hot(watched):
    """By the partitions, or for want of an environment that does not wait for them; what is found is served soon."""
    more = (
        {"is_watched": True, "scale": 0.03, "seconds": 4.0, "writes_per_second": 0.0} if watched else {"seconds": 2.0}
    )
    rush = replace(RUSH, copies=0, **more)
    run = run_rush(rush, 2 if watched else 1)
    assert judge_reads(run, rush) == []
    assert run.seconds[0].refused > (0.9 if watched else 0.5) * run.seconds[0].offered
    if not watched:
        assert run.refused + run.from_dynamodb == run.offered
        assert run.throttled_queries > 0


def test_a_small_rush_of_additions():
    """A fiftieth of the real one. Nothing is refused that is not hot, and the sum is right."""
    counter_rush = counter_faults.run_rush(1, per_second=200.0)
    assert (counter_rush.refused, counter_rush.breaches, counter_rush.shard_counts) == (0, (), ())
    assert counter_rush.acknowledged == counter_rush.offered > 1_000
