"""`make example`: another team's application from the installed wheel, and the rush of one of its sites.

Its clients read every kind of view beside the sites, and each is judged as a read of a site, or of its readings of one
device. A site is what a conversation is there, a device a sender, a reading a message; its id is its time and device.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hotpartition.core.times import format_time
from tools.local.processes import LocalRunError
from tools.play.client import HttpApi, Part, Response
from tools.play.demo import Demonstration
from tools.play.workload import Offer, Scale, Workload, generate_workload, measure_scale

APP = Path(__file__).resolve().parents[2] / "examples" / "sensors"

DEVICES = tuple(f"dev-{number:02}" for number in range(20))
"""Of each site."""
HOT_SITE = "plant-hot"

GATHERED_SECONDS = 0.1
MOST_IN_BATCH = 100
CLOCK_SLACK_SECONDS = 60.0
SETTINGS = frozenset({"hot_at_once_wcu", "hot_sustained_wcu", "target_shard_wcu", "sampling_distance_wcu"})
"""Those that the application's stack takes."""


def generate_readings(*, seed: int, scale: Scale, duration_seconds: float) -> Workload:
    """Generate readings of many quiet sites, and of one whose devices suddenly all report what they see."""
    rng = random.Random(seed)
    workload = generate_workload(
        seed=seed, scale=scale, duration_seconds=duration_seconds, hot=HOT_SITE, prefix="plant"
    )
    offers = tuple(
        replace(offer, sender=rng.choice(DEVICES), body=f"{rng.gauss(21.0, 3.0):.1f}") for offer in workload.offers
    )
    sites = len(workload.conversations)
    described = f"generated with seed {seed}: {len(offers)} readings of {len(DEVICES)} devices at each of {sites} sites"
    return replace(workload, offers=offers, description=described)


class DevicesApi(HttpApi):
    """The example's API. Every other device sends through its site's gateway, in batches.

    What is read may be a site, or `<site>/devices/<device>`, or `<site>/hourly`.
    """

    writer = "ingest"
    reader = "reads"
    collection = "site"
    item = "reading"

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._latest_ms: dict[tuple[str, str], int] = {}
        self._since = _time_in(-CLOCK_SLACK_SECONDS)
        self._gathered: dict[str, list[dict[str, Any]]] = {}
        self._batches: dict[str, asyncio.Task[Response]] = {}

    def mint(self, offer: Offer, now: float, rng: random.Random) -> str:
        """Mint the id of a reading that is taken now: a device takes one in a millisecond, by its own clock."""
        del rng
        place = offer.conversation_id, offer.sender
        at_ms = self._latest_ms[place] = max(int(now * 1000), self._latest_ms.get(place, 0) + 1)
        return f"{format_time(at_ms)}#{offer.sender}"

    def find_part(self, name: str) -> Part:
        """Find the site that a view shows, and whose readings."""
        site, *view = name.split("/")
        device = view[1] if len(view) > 1 else ""
        return site, lambda reading: reading.endswith(f"#{device}") if device else True

    async def write(self, conversation_id: str, message: Mapping[str, Any]) -> Response:
        """Send one reading, alone or with others."""
        taken_at, _, device = message["message_id"].partition("#")
        reading = {"device": device, "taken_at": taken_at, "celsius": float(message["body"])}
        if device in DEVICES[1::2]:
            response = await self._send_gathered(conversation_id, reading)
        else:
            response = await self.request("POST", f"/sites/{conversation_id}/readings", json=reading)
        stored = [_show(one) for one in response.body.get("readings", [response.body]) if "taken_at" in one]
        own = next((one for one in stored if one["message_id"] == message["message_id"]), {})
        return replace(response, body={**response.body, **own})

    async def read(self, conversation_id: str, parameters: Mapping[str, str]) -> Response:
        """Get one page."""
        path = conversation_id if conversation_id.endswith("/hourly") else f"{conversation_id}/readings"
        between = {"from": self._since, "to": _time_in(CLOCK_SLACK_SECONDS)}
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


def _show(reading: Mapping[str, Any]) -> dict[str, Any]:
    """Show a reading as a message."""
    return {
        "conversation_id": reading["site"],
        "message_id": f"{reading['taken_at']}#{reading['device']}",
        "sender": reading["device"],
        "body": f"{reading['celsius']:.1f}",
    }


def _time_in(seconds: float) -> str:
    return format_time(int((time.time() + seconds) * 1000))


class EveryView(Demonstration):
    """Reads the hourly view of all sites as well, and the hot site's devices one by one."""

    def list_views(self) -> Mapping[str, Sequence[str]]:
        """List the views of each kind.

        The index is eventually consistent, and filled by now: the last reading was written long before. So all that was
        acknowledged is looked for in it as well.
        """
        return {
            **super().list_views(),
            "hourly view": [f"{site}/hourly" for site in self.workload.conversations],
            "readings of one device": [f"{HOT_SITE}/devices/{device}" for device in DEVICES],
        }


def install(wheel: Path, folder: Path) -> Mapping[str, str]:
    """Install a wheel into a folder of its own; returns the environment in which nothing else of this project is found.

    What it depends on is what this project has: no network is needed. If that fails, it is a `LocalRunError`.
    """
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    _run([*command, "--target", str(folder.resolve()), str(wheel.resolve())], os.environ)
    return {**os.environ, "PYTHONPATH": str(folder.resolve())}


def synthesize(outdir: Path, environment: Mapping[str, str], settings: Mapping[str, float]) -> None:
    """Run the app for this machine, as the CDK's command line does; if it fails, it is a `LocalRunError`."""
    shutil.rmtree(outdir, ignore_errors=True)
    context = {**json.loads((APP / "cdk.json").read_text())["context"], "local": True, "settings": settings}
    # Nothing is deployed, and the CDK's rules take longer than all else.
    cdk = {
        "CDK_VALIDATION": "false",
        "CDK_CONTEXT_JSON": json.dumps(context),
        "CDK_OUTDIR": str(outdir.resolve()),
    }
    _run([sys.executable, "app.py"], {**environment, **cdk})


def _run(command: list[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(command, cwd=APP, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LocalRunError(f"{' '.join(command)} failed:\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}")


async def run(options: argparse.Namespace) -> int:
    """Install the wheel, synthesize the app at a scale that this machine can run, and play the rush."""
    scale = measure_scale()
    environment = install(options.wheel, options.out / "packages")
    settings = {name: value for name, value in scale.settings().items() if name in SETTINGS}
    assembly = options.out / "assembly"
    synthesize(assembly, environment, settings)
    example = EveryView(
        workload=generate_readings(seed=options.seed, scale=scale, duration_seconds=options.duration),
        scale=scale,
        seed=options.seed,
        out_dir=options.out,
        more={"assembly": assembly},
        application=DevicesApi,
    )
    return await example.present()
