"""The devices of the example: their readings, and how they speak to its API, as clients do to the messages API.

A site is what a conversation is there, a device a sender, a reading a message; its id is its time and its device.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import aiohttp

from hotpartition.core.times import format_time
from tools.play.client import HttpApi, Response
from tools.play.scale import Scale
from tools.play.workload import Offer, Workload, generate_workload

DEVICES = 20
"""Of each site."""
HOT_SITE = "plant-hot"

GATHERED_SECONDS = 0.1
MOST_IN_BATCH = 100
CLOCK_SLACK_SECONDS = 60.0


def generate_readings(*, seed: int, scale: Scale, duration_seconds: float) -> Workload:
    """Generate readings of many quiet sites, and of one whose devices suddenly all report what they see."""
    rng = random.Random(seed)
    workload = generate_workload(
        seed=seed, scale=scale, duration_seconds=duration_seconds, hot=HOT_SITE, prefix="plant"
    )
    offers = tuple(
        replace(offer, sender=device_name(rng.randrange(DEVICES)), body=f"{rng.gauss(21.0, 3.0):.1f}")
        for offer in workload.offers
    )
    sites = len(workload.conversations)
    described = f"generated with seed {seed}: {len(offers)} readings of {DEVICES} devices at each of {sites} sites"
    return replace(workload, offers=offers, description=described)


def device_name(number: int) -> str:
    """Name a site's device."""
    return f"dev-{number:02}"


class DevicesApi(HttpApi):
    """The example's API. Every other device sends through its site's gateway, in batches.

    `conversation_id` of a read may be a site, or `<site>/devices/<device>`, or `<site>/hourly`.
    """

    writer = "ingest"
    reader = "reads"
    collection = "site"
    item = "reading"

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        super().__init__(session, url)
        self._latest_ms: dict[tuple[str, str], int] = {}
        self._since = _format_time(time.time() - CLOCK_SLACK_SECONDS)
        self._gathered: dict[str, list[dict[str, Any]]] = {}
        self._batches: dict[str, asyncio.Task[Response]] = {}

    def mint(self, offer: Offer, now: float, rng: random.Random) -> str:
        """Mint the id of a reading that is taken now: a device takes one in a millisecond, by its own clock."""
        del rng
        place = offer.conversation_id, offer.sender
        at_ms = self._latest_ms[place] = max(int(now * 1000), self._latest_ms.get(place, 0) + 1)
        return f"{format_time(at_ms)}#{offer.sender}"

    async def write(self, conversation_id: str, message: Mapping[str, Any]) -> Response:
        """Send one reading, alone or with others."""
        taken_at, _, device = message["message_id"].partition("#")
        reading = {"device": device, "taken_at": taken_at, "celsius": float(message["body"])}
        if is_behind_gateway(device):
            response = await self._send_gathered(conversation_id, reading)
        else:
            response = await self.request("POST", f"/sites/{conversation_id}/readings", json=reading)
        stored = [_show(one) for one in response.body.get("readings", [response.body]) if "taken_at" in one]
        own = next((one for one in stored if one["message_id"] == message["message_id"]), {})
        return replace(response, body={**response.body, **own})

    async def read(self, conversation_id: str, parameters: Mapping[str, str]) -> Response:
        """Get one page."""
        path = conversation_id if conversation_id.endswith("/hourly") else f"{conversation_id}/readings"
        between = {"from": self._since, "to": _format_time(time.time() + CLOCK_SLACK_SECONDS)}
        response = await self.request("GET", f"/sites/{path}", params={**parameters, **between})
        shown = [_show(one) for one in response.body.get("readings", ())]
        return replace(response, body={**response.body, "messages": shown})

    async def _send_gathered(self, site: str, reading: dict[str, Any]) -> Response:
        """Wait for others, and send the batch; all of them share its response."""
        readings = self._gathered.get(site)
        if readings is None or len(readings) == MOST_IN_BATCH:
            readings = self._gathered[site] = []
            self._batches[site] = asyncio.create_task(self._send_batch(site, readings))
        readings.append(reading)
        return await asyncio.shield(self._batches[site])

    async def _send_batch(self, site: str, readings: list[dict[str, Any]]) -> Response:
        await asyncio.sleep(GATHERED_SECONDS)
        if self._gathered.get(site) is readings:
            del self._gathered[site]
        return await self.request("POST", f"/sites/{site}/readings/batch", json={"readings": readings})


def is_behind_gateway(device: str) -> bool:
    """Say whether a device sends through its site's gateway."""
    return device[-1] in "13579"


def _show(reading: Mapping[str, Any]) -> dict[str, Any]:
    """Show a reading as a message."""
    return {
        "conversation_id": reading["site"],
        "message_id": f"{reading['taken_at']}#{reading['device']}",
        "sender": reading["device"],
        "body": f"{reading['celsius']:.1f}",
    }


def _format_time(seconds: float) -> str:
    return format_time(int(seconds * 1000))
