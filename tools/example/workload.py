"""The readings of a rush: the demonstration's workload, taken by devices instead of being said by people."""

from __future__ import annotations

import random
from dataclasses import replace

from tools.load.scale import Scale
from tools.load.workload import HOT_CONVERSATION, Offer, Workload, generate_workload

DEVICES = 20
"""Of each site."""
HOT_SITE = "plant-000"


def generate_readings(*, seed: int, scale: Scale, duration_seconds: float) -> Workload:
    """Generate readings of many quiet sites, and of one whose devices suddenly all report what they see."""
    workload = generate_workload(seed=seed, scale=scale, duration_seconds=duration_seconds)
    rng = random.Random(seed)
    offers = tuple(sorted(_take(offer, rng) for offer in workload.offers))
    sites = len(workload.conversations)
    return replace(
        workload,
        offers=offers,
        hot_conversation=HOT_SITE,
        description=f"generated with seed {seed}: {len(offers)} readings of {DEVICES} devices at each of {sites} sites",
    )


def device_name(number: int) -> str:
    """Name a site's device."""
    return f"dev-{number:02}"


def _take(offer: Offer, rng: random.Random) -> Offer:
    name = offer.conversation_id
    site = HOT_SITE if name == HOT_CONVERSATION else name.replace("room-", "plant-")
    return Offer(offer.at_seconds, site, device_name(rng.randrange(DEVICES)), f"{rng.gauss(21.0, 3.0):.1f}")
