"""The state machine: any calls in any order on both tables, with raises in between."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tools.equivalence.calls import COLLECTIONS, Call, Calls
from tools.equivalence.combinations import INDEX, PARTITION, SORT, Combination, Subject, build_subject
from tools.equivalence.compare import DifferenceError, Pair, kind_of, perform, walk
from tools.equivalence.engines import create_table

STEPS = 30
MOST_SHARDS = 16
shard_counts = st.integers(1, MOST_SHARDS)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a machine plays with. `counter` counts the calls by kind; `refused` are calls that the engine refuses."""

    combination: Combination
    resource: Any
    counter: Counter[str]
    calls: Calls
    refused: tuple[Call, ...]


class Machine(RuleBasedStateMachine):
    """One history of calls; the subclass of a combination brings the setting."""

    setting: ClassVar[Setting]
    pair: Pair
    subject: Subject

    @initialize(shards=shard_counts)
    def create(self, shards: int) -> None:
        """Begin with two empty tables."""
        setting = self.setting
        self.plain = create_table(setting.resource, setting.combination)
        self.stored = create_table(setting.resource, setting.combination, is_ours=True)
        self.subject = build_subject(setting.combination, self.stored, shards)
        self.pair = Pair(self.plain, self.subject.build())

    @rule(data=st.data())
    def put_item(self, data: st.DataObject) -> None:
        """Put an item."""
        self._call(data.draw(self.setting.calls.puts))

    @rule(data=st.data())
    def change_item(self, data: st.DataObject) -> None:
        """Put, update or delete an item."""
        calls = self.setting.calls
        self._call(data.draw(st.one_of(calls.puts, calls.updates, calls.updates, calls.deletes)))

    @rule(data=st.data())
    def get_item(self, data: st.DataObject) -> None:
        """Read an item."""
        self._call(data.draw(self.setting.calls.gets))

    @rule(data=st.data())
    def query(self, data: st.DataObject) -> None:
        """Read the pages of a query; where a filter leaves open what a page holds, all of them together."""
        calls = self.setting.calls
        call = data.draw(st.one_of(calls.queries, calls.queries, calls.text_queries))
        self.setting.counter[call.method] += 1
        if "FilterExpression" in call.request:
            self.pair.walk(call, order_of=repr)
        else:
            self.pair.page(call)

    @rule(data=st.data())
    def query_index(self, data: st.DataObject) -> None:
        """Read an index: items at the same place of it come in any order."""
        self.setting.counter["query of an index"] += 1
        call, order = data.draw(self.setting.calls.index_queries)
        self.pair.walk(call, order_of=lambda item: item[order])

    @precondition(lambda self: self.setting.combination.has_buckets)
    @rule(data=st.data())
    def query_range(self, data: st.DataObject) -> None:
        """Read a range of time: ours from its index, boto3's from the table."""
        self.setting.counter["query of a range"] += 1
        call = data.draw(self.setting.calls.ranges)
        expected = walk(self.pair.expected, call)
        found = walk(self.pair.found, Call(call.method, {**call.request, "IndexName": INDEX}))
        if expected != found:
            raise DifferenceError.of(f"walk of the range {call}", expected, found)

    @rule(limit=st.one_of(st.none(), st.integers(1, 9)))
    def scan(self, limit: int | None) -> None:
        """Read the whole table."""
        self.setting.counter["scan"] += 1
        self.pair.walk(Call("scan", {} if limit is None else {"Limit": limit}))

    @rule(data=st.data(), is_deduped=st.booleans())
    def write_batch(self, data: st.DataObject, is_deduped: bool) -> None:
        """Put and delete many; without `overwrite_by_pkeys`, a key is named once."""
        self.setting.counter["batch_writer"] += 1
        items = data.draw(st.lists(self.setting.calls.items, max_size=30))
        keys = data.draw(st.lists(self.setting.calls.keys, max_size=5))
        if not is_deduped:
            items = list({repr((item[PARTITION], item[SORT])): item for item in items}.values())
            named = {repr((item[PARTITION], item[SORT])) for item in items}
            keys = [key for key in keys if repr((key[PARTITION], key[SORT])) not in named]
            keys = list({repr(key): key for key in keys}.values())
        for table in (self.pair.expected, self.pair.found):
            with table.batch_writer(*([[PARTITION, SORT]] if is_deduped else [])) as batch:
                for item in items:
                    batch.put_item(Item=item)
                for key in keys:
                    batch.delete_item(Key=key)

    @rule(data=st.data())
    def call_wrongly(self, data: st.DataObject) -> None:
        """Make a call that is refused; the text of the refusal may quote an expression, which has our part in it."""
        self.setting.counter["refused"] += 1
        call = data.draw(st.sampled_from(self.setting.refused))
        expected, found = perform(self.pair.expected, call), perform(self.pair.found, self._told(call))
        if kind_of(expected) != kind_of(found):
            raise DifferenceError.of(call, expected, found)

    @rule(shards=shard_counts)
    def raise_shards(self, shards: int) -> None:
        """Raise N."""
        self.setting.counter["raise"] += 1
        for collection in COLLECTIONS:
            self.pair.found = self.subject.raise_to(collection, shards)

    def _call(self, call: Call) -> None:
        self.setting.counter[call.method] += 1
        self.pair.call(call, self._told(call))

    def _told(self, call: Call) -> Call:
        """Tell ours what the shard is chosen by, where an update may create an item and nothing else tells it."""
        if call.method != "update_item" or self.setting.combination.hashed != "by_attribute":
            return call
        return Call(call.method, {**call.request, "Hashed": self.setting.calls.device_of(call.request["Key"])})

    def teardown(self) -> None:
        """Look at all that is stored, and drop the tables."""
        if hasattr(self, "pair"):
            self.pair.walk(Call("scan", {}))
            self.plain.delete()
            self.stored.delete()


def run_machine(combination: Combination, resource: Any, *, examples: int, counter: Counter[str], seed: int) -> None:
    """Play histories until one differs, or so many did not.

    Raises:
        DifferenceError: one differs; hypothesis made it as short as it could.
    """
    calls = Calls(combination)
    refused = _list_refused(calls, create_table(resource, combination))
    setting = Setting(combination, resource, counter, calls, refused)
    machine = type("History", (Machine,), {"setting": setting, "_hypothesis_internal_use_seed": seed})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        ),
    )


def _list_refused(calls: Calls, table: Any) -> tuple[Call, ...]:
    """List the wrong calls that this engine refuses: moto takes some that DynamoDB does not, and we refuse."""
    refused = tuple(call for call in calls.list_wrong() if perform(table, call).error is not None)
    table.delete()
    return refused
