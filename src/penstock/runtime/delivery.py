"""What a run has seen its devices deliver, as it is kept for later ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.tuning.kinds import kind
from penstock.tuning.member import Member
from penstock.tuning.registry import Delivered, Delivery

if TYPE_CHECKING:
    from penstock.engine.devices import DeviceRecord

__all__ = ["deliveries_of"]


def deliveries_of(devices: Iterable[DeviceRecord]) -> list[Delivery]:
    """What is worth keeping: of devices for which the best is known, and was measured; of those that search together,
    once.

    Those that left such a group come first: where they say otherwise, what the group says is kept.
    """
    together: dict[object, list[DeviceRecord]] = {}
    for device in devices:
        if device.controller is not None and device.controller.search.settled and device.files_moved:
            search = device.controller.search
            together.setdefault(search.group if isinstance(search, Member) else search, []).append(device)
    found = []
    for alike in sorted(together.values(), key=len):
        device = alike[0]
        controller = device.controller
        assert controller is not None
        search = controller.search
        files = sum(one.files_moved for one in alike)
        curve = tuple(Delivered(limit, one.rate, one.error) for limit, one in sorted(search.points.items()) if one.rate)
        if not curve:
            continue  # the device has just changed, and what is known of it no longer holds
        found.append(
            Delivery(
                function=kind(sum(one.bytes_moved for one in alike) / files, writes=device.writes),
                layer=device.name,
                bandwidth=device.layer.bandwidth,
                executors=device.executors,
                best=search.best,
                curve=curve,
                steady=controller.steady,
                spread=search.spread,
                attempts=files,
            )
        )
    return found
