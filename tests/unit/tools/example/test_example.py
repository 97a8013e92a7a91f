"""The example's devices and what its rush is judged by, without a stack."""

from dataclasses import replace

import pytest

from tools.example.devices import DEVICES, HOT_SITE
from tools.example.run import EveryView
from tools.history_checker import Acknowledged, Read, Seen


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
