"""Compiled event loop of stages that overlap: who sends what to whom when, one draw after the other."""

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    from numba import njit
except ModuleNotFoundError:  # a small site: the same loops, slower

    def njit(**_: bool) -> Any:  # type: ignore[no-redef]
        """Leave a function as it is."""
        return lambda plain: plain


PREPARED, ABSORBED, SENT = 0, 1, 2


@njit(cache=True, nogil=True)
def play(
    parcels: NDArray[Any],
    way: NDArray[Any],
    granted: NDArray[Any],
    export: NDArray[Any],
    absorb: NDArray[Any],
    awaits: NDArray[Any],
    by_sender: NDArray[Any],
    sender_starts: NDArray[Any],
    by_recipient: NDArray[Any],
    recipient_starts: NDArray[Any],
    shared: bool,
    begins: NDArray[Any],
    ends: NDArray[Any],
    seconds: NDArray[Any],
) -> None:
    """Write when each parcel begins and ends, and how long all of it lasts.

    ``parcels`` are rows of stage, sender and recipient, stage by stage. ``awaits[s, t]``: a device sends what stage s
    has it send when it has absorbed all that stage t brings it. ``by_sender`` and ``by_recipient`` are the parcels of
    each device in their order, from ``starts`` on. ``export`` and ``absorb`` are seconds by draw, stage and device.
    """
    stage, sender, recipient = parcels
    draws, count = way.shape
    stages, devices = export.shape[1], export.shape[2]
    arriving = np.zeros((stages, devices), np.int64)
    for parcel in range(count):
        arriving[stage[parcel], recipient[parcel]] += 1
    for draw in range(draws):
        missing, inputs = arriving.copy(), np.zeros((stages, devices), np.int64)
        computing = granted[draw].copy()  # until when each device computes
        sending, taking, channel = np.zeros(devices, np.bool_), np.zeros(devices, np.bool_), np.zeros(1, np.bool_)
        ready, begun = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        first_sent, first_taken = sender_starts.copy(), recipient_starts.copy()
        events: Any = [(0.0, 0, 0, 0) for _ in range(0)]  # time, kind, parcel or stage, device
        waiting: Any = [0 for _ in range(0)]  # ready parcels of the shared channel
        chosen: Any = [(0, 0) for _ in range(0)]  # parcels that may begin now, and who looked for them
        sides = (by_sender, sender_starts, first_sent, by_recipient, recipient_starts, first_taken)
        free = np.empty((2, stages * devices + 2 * count), np.int64)  # 0 or 1 for a sender or recipient, its number
        for one in range(stages):
            for device in range(devices):
                inputs[one, device] = awaits[one].sum()
                if inputs[one, device] == 0:
                    end = _computed(computing, device, granted[draw, device], export[draw, one, device])
                    heapq.heappush(events, (end, PREPARED, one, device))
                if missing[one, device] == 0:
                    heapq.heappush(events, (0.0, ABSORBED, one, device))
        while len(events) > 0:
            now = seconds[draw] = events[0][0]
            looks = 0
            while len(events) > 0 and events[0][0] == now:
                _, kind, what, device = heapq.heappop(events)
                if kind == SENT:
                    one, device = stage[what], recipient[what]
                    sending[sender[what]], taking[device], channel[0] = False, False, False
                    free[0, looks], free[1, looks] = 0, sender[what]
                    free[0, looks + 1], free[1, looks + 1] = 1, device
                    looks += 2
                    missing[one, device] -= 1
                    if missing[one, device] == 0:
                        end = _computed(computing, device, now, absorb[draw, one, device])
                        heapq.heappush(events, (end, ABSORBED, one, device))
                elif kind == ABSORBED:
                    for one in range(stages):
                        if awaits[one, what]:
                            inputs[one, device] -= 1
                            if inputs[one, device] == 0:
                                start = max(now, granted[draw, device])
                                end = _computed(computing, device, start, export[draw, one, device])
                                heapq.heappush(events, (end, PREPARED, one, device))
                else:
                    for place in range(first_sent[device], sender_starts[device + 1]):
                        parcel = by_sender[place]
                        if stage[parcel] == what:
                            ready[parcel] = True
                            if shared:
                                heapq.heappush(waiting, parcel)
                    free[0, looks], free[1, looks] = 0, device
                    looks += 1
            if shared:
                if not channel[0] and len(waiting) > 0:
                    heapq.heappush(chosen, (heapq.heappop(waiting), 0))
                looks = 0
            for look in range(looks):
                first = _first(free[0, look], free[1, look], *sides, ready, begun, sending, taking, sender, recipient)
                if first >= 0:
                    heapq.heappush(chosen, (first, look))
            while len(chosen) > 0:  # the first of all that may begin; whoever loses it to another looks again
                parcel, look = heapq.heappop(chosen)
                if not (begun[parcel] or sending[sender[parcel]] or taking[recipient[parcel]]):
                    begun[parcel], channel[0] = True, True
                    sending[sender[parcel]], taking[recipient[parcel]] = True, True
                    begins[draw, parcel], ends[draw, parcel] = now, now + way[draw, parcel]
                    heapq.heappush(events, (ends[draw, parcel], SENT, parcel, 0))
                elif looks:
                    first = _first(
                        free[0, look], free[1, look], *sides, ready, begun, sending, taking, sender, recipient
                    )
                    if first >= 0:
                        heapq.heappush(chosen, (first, look))


@njit(cache=True, nogil=True)
def _first(
    side: int,
    device: int,
    by_sender: NDArray[Any],
    sender_starts: NDArray[Any],
    first_sent: NDArray[Any],
    by_recipient: NDArray[Any],
    recipient_starts: NDArray[Any],
    first_taken: NDArray[Any],
    ready: NDArray[Any],
    begun: NDArray[Any],
    sending: NDArray[Any],
    taking: NDArray[Any],
    sender: NDArray[Any],
    recipient: NDArray[Any],
) -> int:
    """Return the first parcel that a free sender (side 0) or recipient (1) may begin with, -1 if there is none."""
    if side == 0:
        order, starts, firsts, own, other, party = by_sender, sender_starts, first_sent, sending, taking, recipient
    else:
        order, starts, firsts, own, other, party = by_recipient, recipient_starts, first_taken, taking, sending, sender
    if own[device]:
        return -1
    firsts[device] = _skipped(order, firsts[device], starts[device + 1], begun)
    for place in range(firsts[device], starts[device + 1]):
        parcel = order[place]
        if ready[parcel] and not begun[parcel] and not other[party[parcel]]:
            return int(parcel)
    return -1


@njit(cache=True, nogil=True)
def _skipped(order: NDArray[Any], first: int, end: int, begun: NDArray[Any]) -> int:
    """Return the place of the first parcel that has not begun."""
    while first < end and begun[order[first]]:
        first += 1
    return first


@njit(cache=True, nogil=True)
def _computed(computing: NDArray[Any], device: int, now: float, seconds: float) -> float:
    """Return when a device has computed what it can begin now, after what it computes already; no work never waits."""
    if seconds == 0:
        return now
    computing[device] = max(computing[device], now) + seconds
    return float(computing[device])
