"""The state machine: any calls in any order on both tables, with raises in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tools.equivalence.calls import Call, Calls, Request, name_of, projections
from tools.equivalence.combinations import INDEX, PARTITION, SORT, Combination, Subject
from tools.equivalence.compare import Outcome, Pair, perform, plain, require_equal, walk
from tools.equivalence.engines import create_table

STEPS = 30
MOST_SHARDS = 16
MOST_READ_AT_ONCE = 3
"""Items of a transaction whose places are few: moto reads 25 at once, DynamoDB 100."""
shard_counts = st.integers(1, MOST_SHARDS)


class Machine(RuleBasedStateMachine):
    """One history of calls; the subclass of a combination brings what it plays with.

    boto3's table is on `reference`, ours on `resource`: the same engine, or the one that it is held to. `counter` has
    the number of calls of each kind.
    """

    combination: ClassVar[Combination]
    reference: ClassVar[Any]
    resource: ClassVar[Any]
    counter: ClassVar[Counter[str]]
    calls: ClassVar[Calls]
    pair: Pair
    subject: Subject

    @initialize(shards=shard_counts)
    def create(self, shards: int) -> None:
        """Begin with two tables of a few items: in empty ones, most reads would find nothing."""
        self.plain = create_table(self.reference, self.combination)
        self.stored = create_table(self.resource, self.combination, is_ours=True)
        self.subject = Subject(self.combination, self.stored, shards)
        self.pair = Pair(self.plain, self.subject.build())
        for item in self.calls.list_first():
            self.plain.put_item(Item=item)
            self.pair.found.put_item(Item=item)

    @rule(data=st.data())
    def change_item(self, data: st.DataObject) -> None:
        """Put, update or delete an item."""
        calls = self.calls
        self._call(data.draw(st.one_of(calls.puts, calls.puts, calls.updates, calls.updates, calls.deletes)))

    @rule(data=st.data())
    def get_item(self, data: st.DataObject) -> None:
        """Read an item."""
        self._call(data.draw(self.calls.gets))

    @rule(data=st.data())
    def query(self, data: st.DataObject) -> None:
        """Read the pages of a query; where a filter leaves open what a page holds, all of them together."""
        call = data.draw(self.calls.queries)
        self.counter[call.method] += 1
        if "FilterExpression" in call.request:
            self.pair.walk(call, order_of=repr)
        else:
            self.pair.page(call)

    @rule(data=st.data())
    def query_index(self, data: st.DataObject) -> None:
        """Read an index: items at the same place of it come in any order."""
        self.counter["query of an index"] += 1
        call, order = data.draw(self.calls.index_queries)
        self.pair.walk(call, order_of=lambda item: [item[name] for name in order])

    @precondition(lambda self: self.combination.has_buckets)
    @rule(data=st.data())
    def query_range(self, data: st.DataObject) -> None:
        """Read a range of time: ours from its index, boto3's from the table."""
        self.counter["query of a range"] += 1
        call = data.draw(self.calls.ranges)
        expected = walk(self.pair.expected, call)
        found = walk(self.pair.found, Call(call.method, {**call.request, "IndexName": INDEX}))
        require_equal(f"walk of the range {call}", expected, found)

    @rule(data=st.data())
    def scan(self, data: st.DataObject) -> None:
        """Read the whole table, or what a filter keeps of it."""
        self.counter["scan"] += 1
        self.pair.walk(data.draw(self.calls.scans))

    @rule(segments=st.integers(1, 4), limit=st.one_of(st.none(), st.integers(1, 9)))
    def scan_segments(self, segments: int, limit: int | None) -> None:
        """Read the table in segments: which items are in which, DynamoDB does not say."""
        self.counter["scan in segments"] += segments
        limited = {} if limit is None else {"Limit": limit}
        found: list[Any] = []
        for segment in range(segments):
            found += walk(self.pair.found, Call("scan", {"Segment": segment, "TotalSegments": segments, **limited}))
        expected = walk(self.pair.expected, Call("scan", {}))
        require_equal(f"{segments} segments", sorted(map(repr, expected)), sorted(map(repr, found)))

    @rule(data=st.data())
    def get_items(self, data: st.DataObject) -> None:
        """Read several items: in the order of their keys, and through the client in any."""
        self.counter["get_items"] += 1
        keys = data.draw(self.calls.key_lists)
        expected = [self.pair.expected.get_item(Key=key).get("Item") for key in keys]
        found = self.pair.found.get_items(keys)
        require_equal(f"get_items of {keys}", plain(expected), plain(found))
        asked = {"Keys": keys, **data.draw(projections)}
        self.pair.same(asked, lambda table: _get_batch(table, asked))

    @rule(data=st.data())
    def call_client(self, data: st.DataObject) -> None:
        """Make a call about one item, or read all pages of a query, by the client."""
        calls = self.calls
        call = data.draw(st.one_of(calls.puts, calls.updates, calls.deletes, calls.gets, calls.queries))
        self.counter["client"] += 1
        if call.method == "query":
            self.pair.same(call, lambda table: _paginate(table, call))
        else:
            self.pair.same(call, lambda table: _perform_by_client(table, self._complete(table, call)))

    @rule(data=st.data())
    def change_in_transaction(self, data: st.DataObject) -> None:
        """Change several items at once, or none of them."""
        self._transact("transact_write_items", data.draw(self.calls.transactions))

    @rule(data=st.data())
    def get_in_transaction(self, data: st.DataObject) -> None:
        """Read several items as they are at one moment; moto reads no projection there."""
        has_few_places = (self.combination.shards, self.combination.hashed) == ("fixed", "by_sort_key")
        keys = data.draw(self.calls.key_lists)[: MOST_READ_AT_ONCE if has_few_places else 1]
        self._transact("transact_get_items", [("Get", {"Key": key}) for key in keys])

    @rule(data=st.data(), is_deduped=st.booleans())
    def write_batch(self, data: st.DataObject, is_deduped: bool) -> None:
        """Put and delete many; without `overwrite_by_pkeys`, a key is named once."""
        self.counter["batch_writer"] += 1
        calls, unique = self.calls, None if is_deduped else name_of
        items = data.draw(st.lists(calls.items, max_size=30, unique_by=unique))
        keys = data.draw(st.lists(calls.keys, max_size=5, unique_by=unique))
        if not is_deduped:
            keys = [key for key in keys if name_of(key) not in map(name_of, items)]
        for table in (self.pair.expected, self.pair.found):
            with table.batch_writer(*([[PARTITION, SORT]] if is_deduped else [])) as batch:
                for item in items:
                    batch.put_item(Item=item)
                for key in keys:
                    batch.delete_item(Key=key)

    @rule(shards=shard_counts)
    def raise_shards(self, shards: int) -> None:
        """Raise N."""
        self.counter["raise"] += 1
        self.pair.found = self.subject.raise_to(shards)

    def _call(self, call: Call) -> None:
        self.counter[call.method] += 1
        self.pair.same(call, lambda table: perform(table, self._complete(table, call)))

    def _complete(self, table: Any, call: Call) -> Call:
        return call if table is self.plain else self.calls.complete(call)

    def _transact(self, method: str, actions: Sequence[tuple[str, Request]]) -> None:
        """Make a transaction by the clients of both."""
        self.counter[method] += 1

        def transact(table: Any) -> Outcome:
            place = dict if table is self.plain or method == "transact_get_items" else self.calls.place
            listed = [{kind: {"TableName": table.name, **place(action)}} for kind, action in actions]
            return perform(table.meta.client, Call(method, {"TransactItems": listed}))

        self.pair.same((method, actions), transact)

    def teardown(self) -> None:
        """Look at all that is stored, and drop the tables."""
        if hasattr(self, "pair"):
            self.pair.walk(Call("scan", {}))
            self.plain.delete()
            self.stored.delete()


def _perform_by_client(table: Any, call: Call) -> Outcome:
    return perform(table.meta.client, Call(call.method, {**call.request, "TableName": table.name}))


def _paginate(table: Any, call: Call) -> object:
    """Read all pages of a query by the client's paginator."""
    request = {**call.request, "TableName": table.name}
    size = {"PageSize": request.pop("Limit")} if "Limit" in request else {}
    pages = table.meta.client.get_paginator("query").paginate(**request, PaginationConfig=size)
    found = pages.build_full_result()
    return plain(found.get("Items", found["Count"]))


def _get_batch(table: Any, asked: Request) -> Outcome:
    """Read several items by the client: they come in any order, and are named by their table."""
    found = perform(table.meta.client, Call("batch_get_item", {"RequestItems": {table.name: asked}}))
    if found.response is None:
        return found
    items = sorted(found.response["Responses"].get(table.name, ()), key=repr)
    return Outcome({**found.response, "Responses": items}, None)


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
    _compare_refusals(combination, (reference, resource), calls, counter)
    played = {"combination": combination, "reference": reference, "resource": resource, "counter": counter}
    played |= {"calls": calls, "_hypothesis_internal_use_seed": seed}
    machine = type("History", (Machine,), played)
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


def _compare_refusals(combination: Combination, engines: Sequence[Any], calls: Calls, counter: Counter[str]) -> None:
    """Make wrong calls that the engines refuse alike: moto takes some that DynamoDB does not, or fails at them.

    Kinds are compared: the text of a refusal may quote an expression, which has our part in it.
    """
    # libcurl leaves checks of parameters to DynamoDB.
    left_out: set[Any] = {None, *([("ParamValidationError",)] if combination.is_curl else [])}
    tables = [create_table(engine, combination) for engine in engines]
    stored = create_table(engines[-1], combination, is_ours=True)
    ours = Subject(combination, stored, shards=4).build()
    for call in calls.list_wrong():
        kinds = {perform(table, call).kind for table in tables}
        if len(kinds) == 1 and not kinds & left_out:
            counter["refused"] += 1
            require_equal(call, kinds, {perform(ours, calls.complete(call)).kind})
    for table in (*tables, stored):
        table.delete()
