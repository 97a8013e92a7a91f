"""What the comparison assumes, in sentences, with the scenario's own numbers."""

from __future__ import annotations

from tools.partition_model.latency import READ_PROFILE, WRITE_PROFILE, LatencyProfile
from tools.simulation.rivals import (
    ALARM_SECONDS,
    BATCH,
    DRAINERS,
    HAND_SECONDS,
    PAUSE_SECONDS,
    POLL_SECONDS,
    SEND_SECONDS,
)
from tools.simulation.scenarios import Scenario


def comparison_assumptions(scenario: Scenario) -> tuple[str, ...]:
    """List what is assumed beyond AWS's own words."""
    clients, writers = scenario.clients, scenario.writers
    return (
        "Clients are open-loop: new writes come whether earlier ones are answered or not.",
        (
            f"A refused client repeats after {clients.retry_after_seconds:g} s or up to half as long again, and gives "
            f"up after {clients.attempts} attempts; each is a request that itself tries for "
            f"{scenario.settings.writer.requests.request_budget_ms} ms."
        ),
        f"A write takes {_profile(WRITE_PROFILE)} in DynamoDB, a query {_profile(READ_PROFILE)} (assumed).",
        (
            f"{writers.warm:,} execution environments are warm; each serves one request at a time, and a request goes "
            "to any idle one."
        ),
        (
            "The table's partitions are equal hash ranges with 1,000 write and 3,000 read units a second each, and no "
            "burst above that; none is split during the run."
        ),
        (
            f"{scenario.other_wcu:,.0f} WCU/s of other traffic are charged evenly to all partitions, not request by "
            "request."
        ),
        (
            f"The person whom an alarm calls has spread the conversation {ALARM_SECONDS:.0f} s after the onset; every "
            f"environment follows at once. Of the time before, {HAND_SECONDS:.0f} s are simulated."
        ),
        (
            f"A queue takes {1000 * SEND_SECONDS:.0f} ms to accept a message and up to {1000 * POLL_SECONDS:.0f} ms to "
            f"hand it over; {DRAINERS} consumers write {BATCH} messages each, one after the other, and put one that is "
            f"refused again within {1000 * PAUSE_SECONDS:.0f} ms until it is stored."
        ),
        (
            "Where items are large, a quarter of a second holds few of them: N varies more than with small ones, for "
            "which `make simulate-step` has it."
        ),
        "Redis is up all the time; every strategy that uses it is spared its failures here.",
        (
            "The consumer runs when the rush begins: EventBridge Scheduler starts one each minute, give or take, and "
            "each works until the next is there."
        ),
    )


def _profile(profile: LatencyProfile) -> str:
    at = profile.percentiles_ms
    return f"{at[50]:g} ms (p50), {at[99]:g} ms (p99), {at[99.9]:g} ms (p99.9)"
