"""`ShardedTable` under all faults: right as it is, and found out when it is broken on purpose."""

from dataclasses import replace

import pytest

from hotpartition.engine.registry_routes import RegistryRoutes
from hotpartition.table import item_calls
from hotpartition.table.schema import CHANGES
from tools.history import Finding
from tools.scenarios.table_faults import TableParts, build_fault_plan, judge
from tools.scenarios.table_faults import run as run_table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run():
    """A seed with both journal and items in one table, positions, and shards by an attribute."""
    return run_table(1, seconds=7.0)


def test_nothing_is_lost_doubled_or_undone(run):
    """And something was at stake: raises, shards, changes, deletions and faults of every kind."""
    assert run.breaches == ()
    assert min(run.created, run.changed, run.deleted, run.reads, run.raises, run.sharded_items) > 0
    struck = {"late", "lost answer", "refused key", "server error", "short page", "unprocessed"}
    assert {f"dynamodb {name}" for name in struck} <= dict(run.faults).keys()


def test_a_seed_is_the_same_each_time():
    """To the last request."""
    assert run_table(3, seconds=2.0) == run_table(3, seconds=2.0)


def test_a_breach_misses_the_bar(run):
    """Each of its kind."""
    run = replace(run, confirmed_closes=2)
    assert judge({"table-faults": [run]}).passed
    lost = replace(run, breaches=(Finding("missing", "room", "b", ""), Finding("undone", "room", "c", "")))
    verdict = judge({"table-faults": [run, lost]})
    assert [bar.name for bar in verdict.bars if not bar.holds] == ["items missing", "items undone"]


class UnverifiedRoutes(RegistryRoutes):
    """Takes Redis's word for a route when it reads."""

    def learn(self, collection, shown, *, hint=None, is_strong=False):
        return shown.route if hint is None else hint


def test_reads_that_trust_redis_lose_items():
    """Redis loses routes and is told late."""
    runs = (run_table(seed, TableParts(routes=UnverifiedRoutes), seconds=8.0) for seed in (1, 2, 3, 4))
    assert any(breach.fault == "missing" for run in runs for breach in run.breaches)


def test_writes_that_trust_redis_lose_items(monkeypatch):
    """They go where no reader looks: Redis invents generations."""
    monkeypatch.setattr(RegistryRoutes, "for_write", lambda self, collection: self.for_read(collection).route)
    plan = build_fault_plan(redis_scribbles=4.0)
    runs = (run_table(seed, seconds=6.0, plan=plan) for seed in (2, *range(1, 9)))
    assert any(run.breaches for run in runs)


def test_changes_that_are_not_counted_are_undone_by_late_copies(monkeypatch):
    """The first attempt of a creation arrives when the second one has been changed already, at another place."""
    add_clause = item_calls.add_clause

    def add_nothing(request, addition, names, values=()):
        values = [0 if name == CHANGES else value for name, value in zip(names, values, strict=False)]
        return add_clause(request, addition, names, values)

    monkeypatch.setattr(item_calls, "add_clause", add_nothing)
    plan = build_fault_plan(late_share=0.5)
    runs = (run_table(seed, seconds=6.0, plan=plan) for seed in (7, 9, 12, *range(1, 9)))
    assert any(breach.fault == "undone" for run in runs for breach in run.breaches)


def test_in_band_nothing_is_lost_either():
    """Environments raise what they find hot, on load items that get lost, while the journal is throttled."""
    run = run_table(2, TableParts(is_in_band=True), seconds=8.0)
    assert not run.breaches
    assert "dynamodb refused key" in dict(run.faults)


def test_nothing_is_lost_while_keys_are_folded():
    """By two processes at a time that are killed and started again."""
    run = run_table(6, TableParts(folds=True), seconds=6.0)
    assert not run.breaches
    assert run.moved > 10
    assert run.folds_killed
