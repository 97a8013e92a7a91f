"""What a newest page costs: worked by hand, and what the read function really reads."""

from random import Random

import pytest

from hotpartition.core.route import choose_placement
from hotpartition_messages import Message
from hotpartition_messages.keys import KEY_FORM, build_key
from hotpartition_messages.message_ids import mint_message_id
from hotpartition_messages.page_costs import SAMPLE_PAGES, Load, read_pages
from hotpartition_messages.reading import PageRequest
from support.builders import World


@pytest.mark.parametrize(
    ("item_bytes", "page", "rcu"),
    [
        (1_024, 50, 13),  # 51 items, one to see whether there is more: 52,224 bytes are 12.75 times 4 KiB
        (1_024, 3, 1),
        (1_024, 4, 2),
        (100, 50, 2),  # 5,100 bytes
    ],
)
def test_the_base_keys_page_worked_by_hand(item_bytes, page, rcu):
    """One query, one item more than the page holds, rounded up once; half of it when eventual."""
    cost = read_pages(0, Load(messages_per_second=1, item_bytes=item_bytes, page=page))
    assert (cost.queries, cost.rounds, cost.items_read) == (1, 1, page + 1)
    assert (cost.rcu_strong, cost.rcu_eventual) == (rcu, rcu / 2)


def test_a_page_of_one_message_over_two_shards_worked_by_hand():
    """Each shard is asked for all 2 that are wanted, the base key for its newest one: 5 items, 3 RCU."""
    cost = read_pages(2, Load(messages_per_second=1, item_bytes=1_024, page=1))
    assert (cost.queries, cost.rounds, cost.items_read, cost.rcu_strong) == (3, 1, 5, 3)


@pytest.mark.parametrize(("count", "page"), [(2, 20), (10, 20), (32, 20)])
def test_pages_cost_what_the_reader_reads(count, page):
    """The read function itself, on messages that the write function's rule placed, needs as many queries and items."""
    cost = read_pages(count, Load(messages_per_second=1, item_bytes=1_024, page=page))
    queries = items = 0
    for seed in range(100, 100 + SAMPLE_PAGES):
        world, random = World(), Random(seed)
        now_ms = world.clock.now_ms
        world.raise_to(count, now_ms - 10_000, conversation_id="c")
        route = world.table.routes["c"].route
        for time_ms in range(now_ms - 10_500, now_ms - 10_000 + 30 * max(page, count)):
            message = Message("c", mint_message_id(time_ms, random.getrandbits), "", "")
            world.store(message, choose_placement(route, build_key("c", message.message_id), KEY_FORM).partition_key)
        world.reader().read_page(PageRequest("c", limit=page))
        queries, items = queries + len(world.table.queries), items + world.table.items_read
    assert cost.queries == pytest.approx(queries / SAMPLE_PAGES, rel=0.1)
    assert cost.items_read == pytest.approx(items / SAMPLE_PAGES, rel=0.1)
