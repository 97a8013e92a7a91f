"""The state machine: any calls in any order on both tables, with raises in between."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tools.equivalence.calls import COLLECTIONS, Call, Calls, projections
from tools.equivalence.combinations import INDEX, PARTITION, SORT, Combination, Subject, build_subject
from tools.equivalence.compare import DifferenceError, Outcome, Pair, kind_of, perform, plain, require_equal, walk
from tools.equivalence.engines import create_table

STEPS = 30
MOST_SHARDS = 16
MOST_READ_AT_ONCE = 3
"""Items of a transaction whose places are few: moto reads 25 at once, DynamoDB 100."""
shard_counts = st.integers(1, MOST_SHARDS)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a machine plays with. `counter` counts the calls by kind; `refused` are calls that the engine refuses.

    boto3's table is on `reference`, ours on `resource`: the same engine, or the one that it is held to.
    """

    combination: Combination
    reference: Any
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
        self.plain = create_table(setting.reference, setting.combination)
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
        require_equal(f"walk of the range {call}", expected, found)

    @rule(data=st.data())
    def scan(self, data: st.DataObject) -> None:
        """Read the whole table, or what a filter keeps of it."""
        self.setting.counter["scan"] += 1
        self.pair.walk(data.draw(self.setting.calls.scans))

    @rule(segments=st.integers(1, 4), limit=st.one_of(st.none(), st.integers(1, 9)))
    def scan_segments(self, segments: int, limit: int | None) -> None:
        """Read the table in segments: which items are in which, DynamoDB does not say."""
        self.setting.counter["scan in segments"] += segments
        limited = {} if limit is None else {"Limit": limit}
        found = []
        for segment in range(segments):
            part = walk(self.pair.found, Call("scan", {"Segment": segment, "TotalSegments": segments, **limited}))
            if isinstance(part, Outcome):
                raise DifferenceError(f"segment {segment} of {segments}: {part}")
            found += part
        expected = walk(self.pair.expected, Call("scan", {}))
        require_equal(f"{segments} segments", sorted(map(repr, expected)), sorted(map(repr, found)))

    @rule(data=st.data())
    def get_items(self, data: st.DataObject) -> None:
        """Read several items: in the order of their keys, and through the client in any."""
        self.setting.counter["get_items"] += 1
        keys = data.draw(self.setting.calls.key_lists)
        expected = [self.pair.expected.get_item(Key=key).get("Item") for key in keys]
        found = self.pair.found.get_items(keys)
        require_equal(f"get_items of {keys}", plain(expected), plain(found))
        request = {"Keys": keys, **data.draw(projections)}
        self.pair.client("batch_get_item", lambda name: {"RequestItems": {name: request}})

    @rule(data=st.data())
    def call_client(self, data: st.DataObject) -> None:
        """Make a call about one item, or a page, by the client."""
        calls = self.setting.calls
        call = data.draw(st.one_of(calls.puts, calls.updates, calls.deletes, calls.gets, calls.text_queries))
        self.setting.counter["client"] += 1
        told = self._told(call)
        if call.method == "query":
            self.pair.paginate(call)
        else:
            self.pair.client(call.method, lambda name: {**call.request, "TableName": name}, {**told.request})

    @rule(data=st.data())
    def change_in_transaction(self, data: st.DataObject) -> None:
        """Change several items at once, or none of them."""
        self.setting.counter["transact_write_items"] += 1
        calls = self.setting.calls
        drawn = [(kind, _of_transaction(call)) for kind, call in data.draw(calls.transactions)]
        told = [(kind, self._placed(call)) for kind, call in drawn]
        self.pair.transact("transact_write_items", drawn, told)

    @rule(data=st.data())
    def get_in_transaction(self, data: st.DataObject) -> None:
        """Read several items as they are at one moment; moto reads no projection there."""
        self.setting.counter["transact_get_items"] += 1
        combination = self.setting.combination
        has_few_places = (combination.shards, combination.hashed) == ("fixed", "by_sort_key")
        keys = data.draw(self.setting.calls.key_lists)[: MOST_READ_AT_ONCE if has_few_places else 1]
        drawn = [("Get", Call("get_item", {"Key": key})) for key in keys]
        self.pair.transact("transact_get_items", drawn, drawn)

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
        require_equal(call, kind_of(expected), kind_of(found))

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
        return self._placed(call) if call.method == "update_item" else call

    def _placed(self, call: Call) -> Call:
        """Tell ours what the shard of an item would be chosen by, where it may not exist and its key does not tell."""
        if "Key" not in call.request or self.setting.combination.hashed != "by_attribute":
            return call
        return Call(call.method, {**call.request, "Hashed": self.setting.calls.device_of(call.request["Key"])})

    def teardown(self) -> None:
        """Look at all that is stored, and drop the tables."""
        if hasattr(self, "pair"):
            self.pair.walk(Call("scan", {}))
            self.plain.delete()
            self.stored.delete()


def _of_transaction(call: Call) -> Call:
    """Leave out of a call what an action has not, and write its condition as text: boto3 builds none in an action."""
    request = {name: value for name, value in call.request.items() if name != "ReturnValues"}
    if isinstance(condition := request.get("ConditionExpression"), ConditionBase):
        text, names, values = ConditionExpressionBuilder().build_expression(condition)
        request |= {"ConditionExpression": text, "ExpressionAttributeNames": names}
        request |= {"ExpressionAttributeValues": values} if values else {}
    return Call(call.method, request)


def run_machine(
    combination: Combination,
    resource: Any,
    *,
    examples: int,
    counter: Counter[str],
    seed: int,
    reference: Any = None,
) -> None:
    """Play histories until one differs, or so many did not; boto3's table is on `reference`, if that is another engine.

    Raises:
        DifferenceError: one differs; hypothesis made it as short as it could.
    """
    reference = reference or resource
    calls = Calls(combination, between_engines=reference is not resource)
    refused = _list_refused(calls, *(create_table(engine, combination) for engine in (reference, resource)))
    setting = Setting(combination, reference, resource, counter, calls, refused)
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


def _list_refused(calls: Calls, *tables: Any) -> tuple[Call, ...]:
    """List the wrong calls that the engines refuse alike: moto takes some that DynamoDB does not, or fails at them."""
    refused = []
    for call in calls.list_wrong():
        kinds = {kind_of(perform(table, call)) for table in tables}
        refused += [call] if len(kinds) == 1 and None not in kinds else []
    for table in tables:
        table.delete()
    return tuple(refused)
