"""The example's devices and what its rush is judged by, without a stack."""

import asyncio
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from tools.demo.client import Client, Recorder
from tools.demo.scale import choose_scale
from tools.demo.workload import Offer
from tools.example.devices import DeviceClocks, DevicesApi, is_behind_gateway
from tools.example.run import EveryView
from tools.example.workload import DEVICES, HOT_SITE, generate_readings
from tools.history_checker import Acknowledged, Read, Seen

NOW = 1_800_000_000.25
OFFERS = [Offer(0.0, "plant-001", f"dev-{number:02}", "21.5") for number in range(4)]


def test_a_devices_readings_are_told_apart_by_its_own_clock():
    """Two in the same millisecond are one after the other; another device has its own time."""
    clocks, rng = DeviceClocks(), random.Random(1)
    ids = [clocks.mint(offer, NOW, rng) for offer in (OFFERS[0], OFFERS[0], OFFERS[1])]
    assert ids == [
        "2027-01-15T08:00:00.250Z#dev-00",
        "2027-01-15T08:00:00.251Z#dev-00",
        "2027-01-15T08:00:00.250Z#dev-01",
    ]


def test_the_rush_is_the_demonstrations():
    """As many readings of as many sites at the same times, of devices instead of people."""
    workload = generate_readings(seed=1, scale=choose_scale(cores=2), duration_seconds=66.0)
    assert len(workload.conversations) == 65
    assert len(workload.offers) >= 5_000
    assert len({offer.sender for offer in workload.offers}) == DEVICES
    hot = [offer.at_seconds for offer in workload.offers if offer.conversation_id == HOT_SITE]
    assert min(at for at in hot if at >= workload.onset_seconds) == workload.onset_seconds


class Sensors:
    """A stand-in for the example: keeps readings, in memory."""

    def __init__(self):
        self.stored = {}
        self.requests = []

    def app(self):
        app = web.Application()
        app.router.add_post("/sites/{site}/readings", self.ingest)
        app.router.add_post("/sites/{site}/readings/batch", self.ingest)
        app.router.add_get("/sites/{site}/hourly", self.read)
        app.router.add_get("/sites/{site}/readings", self.read)
        app.router.add_get("/sites/{site}/devices/{device}/readings", self.read)
        return app

    async def ingest(self, request):
        body = await request.json()
        readings = [{**one, "site": request.match_info["site"]} for one in body.get("readings", [body])]
        self.requests.append((request.path, len(readings)))
        self.stored |= {(one["taken_at"], one["device"]): one for one in readings}
        return web.json_response({"readings": readings} if "readings" in body else readings[0], status=201)

    async def read(self, request):
        assert request.query["from"] < request.query["to"]
        device = request.match_info.get("device")
        found = [one for _, one in sorted(self.stored.items()) if device in (None, one["device"])]
        return web.json_response({"readings": found, "next_cursor": None})


@pytest.fixture
def played():
    """Four devices' readings, written and read by the demonstration's client; what was recorded of it."""
    sensors, recorder = Sensors(), Recorder()

    async def scenario():
        server = TestServer(sensors.app())
        await server.start_server()
        async with ClientSession() as session:
            client = Client(
                api=DevicesApi(session, str(server.make_url("/"))),
                recorder=recorder,
                rng=random.Random(1),
                now=lambda: NOW,
                mint=DeviceClocks().mint,
            )
            await asyncio.gather(*(client.write(offer) for offer in OFFERS))
            for view in ("plant-001", "plant-001/devices/dev-03", "plant-001/hourly"):
                await client.read(view, order="oldest", consistency="strong", limit=10)
        await server.close()

    asyncio.run(scenario())
    return SimpleNamespace(sensors=sensors, recorder=recorder)


def test_readings_are_sent_alone_or_by_their_sites_gateway(played):
    """Each is acknowledged by its own id, and read as it was written, in every view."""
    alone, gathered = "/sites/plant-001/readings", "/sites/plant-001/readings/batch"
    assert sorted(played.sensors.requests) == [(alone, 1), (alone, 1), (gathered, 2)]
    written = {one.message_id: one.digest for one in played.recorder.acknowledged}
    assert len(written) == 4
    assert not played.recorder.notes
    site, device, hourly = [{seen.message_id: seen.digest for seen in read.messages} for read in played.recorder.reads]
    assert site == hourly == written
    assert device == {id_: digest for id_, digest in written.items() if id_.endswith("#dev-03")}
    assert is_behind_gateway("dev-03")


@pytest.mark.parametrize("lost", ["nothing", "a reading", "a view"])
def test_every_view_is_judged(lost, monkeypatch):
    """A reading that a device's view, or the hourly one, does not show is missed; so is a view that was not read."""
    variant = EveryView([HOT_SITE])
    ids = [f"2027-01-15T08:00:00.250Z#dev-{number:02}" for number in range(DEVICES)]
    for id_ in ids:
        variant.recorder().acknowledged.append(
            Acknowledged(conversation_id=HOT_SITE, message_id=id_, digest="d", acknowledged_at=1.0)
        )
    devices = [f"{HOT_SITE}/devices/dev-{number:02}" for number in range(DEVICES)]
    for view in [f"{HOT_SITE}/hourly", *devices]:
        shown = tuple(Seen(id_, "d") for id_ in ids if view.endswith(("/hourly", id_.partition("#")[2])))
        read = Read(
            conversation_id=view, order="oldest", consistency="strong", started_at=2.0, messages=shown, complete=True
        )
        if view == devices[3]:
            if lost == "a view":
                continue
            read = replace(read, messages=()) if lost == "a reading" else read
        variant._read.reads.append(read)
    hourly, of_device = (variant._judge_views(kind, views) for kind, views in variant._views.items())
    assert (hourly.holds, of_device.holds) == (True, lost == "nothing")
    expected = {"nothing": "each of them once", "a reading": "1 missing", "a view": "1 unverified"}
    assert of_device.figures.endswith(expected[lost])
