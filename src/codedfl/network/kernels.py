"""Compiled loops over parcels, one draw after the other: in their order, and the events of stages that overlap."""

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
READY, BEGUN = 1, 2
_WHAT, _KIND = 1 << 22, 1 << 60
"""Factors of a parcel or stage and of a kind in the number of an event; devices are below the first."""


@njit(cache=True, nogil=True)
def in_turn(
    senders: NDArray[Any],
    recipients: NDArray[Any],
    kinds: NDArray[Any],
    way: NDArray[Any],
    down: NDArray[Any],
    sending: NDArray[Any],
    taking: NDArray[Any],
    begins: NDArray[Any],
    ends: NDArray[Any],
) -> None:
    """Write when parcels begin and end that are sent in their order.

    ``kinds`` are rows: whether a parcel waits for its recipient, whether it takes the shared channel, whether the
    server relays it. Senders and recipients have a row for each draw, or one for all. ``sending`` and ``taking`` are
    until when each party is busy.
    """
    awaited, shared, relayed = kinds
    for draw in range(len(way)):
        row, channel = min(draw, len(senders) - 1), 0.0
        for number in range(way.shape[1]):
            sender, recipient = senders[row, number], recipients[row, number]
            begin = sending[draw, sender]
            if awaited[number]:
                begin = max(begin, taking[draw, recipient])
            if shared[number]:
                begin = max(begin, channel)
            end = begin + way[draw, number]
            sending[draw, sender] = end
            if shared[number]:
                channel = end
            if relayed[number]:
                end = max(end, taking[draw, recipient]) + down[draw, number]
            taking[draw, recipient] = max(end, taking[draw, recipient])
            begins[draw, number], ends[draw, number] = begin, end


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
    # what a device looks through lies in one piece of memory: of each of its parcels, the other side and the state
    to, out_of = recipient[by_sender].astype(np.int32), sender[by_recipient].astype(np.int32)
    sent_at, taken_at = np.empty(count, np.int64), np.empty(count, np.int64)
    sent_at[by_sender], taken_at[by_recipient] = np.arange(count), np.arange(count)
    most_looks = (stages + 2) * devices
    for draw in range(draws):
        missing, inputs = arriving.copy(), np.zeros((stages, devices), np.int64)
        computing = granted[draw].copy()  # until when each device computes
        sending, taking, channel = np.zeros(devices, np.bool_), np.zeros(devices, np.bool_), False
        sent, taken = np.zeros(count, np.uint8), np.zeros(count, np.uint8)  # states of parcels, by either side
        first_sent, first_taken = sender_starts.copy(), recipient_starts.copy()
        ready_sent, ready_taken = sender_starts.copy(), recipient_starts.copy()  # none is ready from there on
        times, events = np.empty((2 * stages + 1) * devices), np.empty((2 * stages + 1) * devices, np.int64)
        chosen, looking = np.empty(most_looks + 1), np.empty(most_looks + 1, np.int64)  # parcels that may begin now
        waiting = np.empty(count if shared else 0)  # ready parcels of the shared channel
        nobody = np.zeros(len(waiting), np.int64)
        size, held = 0, 0
        free = np.empty((3, most_looks), np.int64)  # 0 or 1 for a sender or recipient, its number, where it looked
        for one in range(stages):
            for device in range(devices):
                inputs[one, device] = awaits[one].sum()
                if inputs[one, device] == 0:
                    end = _computed(computing, device, granted[draw, device], export[draw, one, device])
                    size = _push(times, events, size, end, _event(PREPARED, one, device))
                if missing[one, device] == 0:
                    size = _push(times, events, size, 0.0, _event(ABSORBED, one, device))
        while size > 0:
            now = seconds[draw] = times[0]
            looks = 0
            while size > 0 and times[0] == now:
                event = events[0]
                kind, what, device = event // _KIND, event % _KIND // _WHAT, event % _WHAT
                size = _pop(times, events, size)
                if kind == SENT:
                    one, device = stage[what], recipient[what]
                    sending[sender[what]], taking[device], channel = False, False, False
                    free[0, looks], free[1, looks] = 0, sender[what]
                    free[0, looks + 1], free[1, looks + 1] = 1, device
                    looks += 2
                    missing[one, device] -= 1
                    if missing[one, device] == 0:
                        end = _computed(computing, device, now, absorb[draw, one, device])
                        size = _push(times, events, size, end, _event(ABSORBED, one, device))
                elif kind == ABSORBED:
                    for one in range(stages):
                        if awaits[one, what]:
                            inputs[one, device] -= 1
                            if inputs[one, device] == 0:
                                start = max(now, granted[draw, device])
                                end = _computed(computing, device, start, export[draw, one, device])
                                size = _push(times, events, size, end, _event(PREPARED, one, device))
                else:
                    for place in range(first_sent[device], sender_starts[device + 1]):
                        parcel = by_sender[place]
                        if stage[parcel] == what:
                            sent[place], taken[taken_at[parcel]] = READY, READY
                            ready_sent[device] = max(ready_sent[device], place + 1)
                            other = recipient[parcel]
                            ready_taken[other] = max(ready_taken[other], taken_at[parcel] + 1)
                            if shared:
                                held = _push(waiting, nobody, held, float(parcel), 0)
                    free[0, looks], free[1, looks] = 0, device
                    looks += 1
            found = 0
            if shared:
                if not channel and held > 0:
                    found = _push(chosen, looking, found, waiting[0], 0)
                    held = _pop(waiting, nobody, held)
                looks = 0
            for look in range(looks):
                device = free[1, look]
                if free[0, look] == 0:
                    first_sent[device] = _skipped(sent, first_sent[device], ready_sent[device])
                    place = free[2, look] = _next(sent, to, taking, sending, device, first_sent[device], ready_sent)
                    parcel = by_sender[place]
                else:
                    first_taken[device] = _skipped(taken, first_taken[device], ready_taken[device])
                    first = first_taken[device]
                    place = free[2, look] = _next(taken, out_of, sending, taking, device, first, ready_taken)
                    parcel = by_recipient[place]
                if place >= 0:
                    found = _push(chosen, looking, found, float(parcel), look)
            while found > 0:  # the first of all that may begin; whoever loses it to another looks on
                parcel, look, place = int(chosen[0]), looking[0], -1
                if not (sending[sender[parcel]] or taking[recipient[parcel]]):
                    sent[sent_at[parcel]], taken[taken_at[parcel]], channel = BEGUN, BEGUN, True
                    sending[sender[parcel]], taking[recipient[parcel]] = True, True
                    begins[draw, parcel], ends[draw, parcel] = now, now + way[draw, parcel]
                    size = _push(times, events, size, ends[draw, parcel], _event(SENT, parcel, 0))
                elif looks:
                    device, first = free[1, look], free[2, look] + 1
                    if free[0, look] == 0:
                        place = free[2, look] = _next(sent, to, taking, sending, device, first, ready_sent)
                        parcel = by_sender[place]
                    else:
                        place = free[2, look] = _next(taken, out_of, sending, taking, device, first, ready_taken)
                        parcel = by_recipient[place]
                if place >= 0:
                    _sift(chosen, looking, found, float(parcel), look)
                else:
                    found = _pop(chosen, looking, found)


@njit(cache=True, nogil=True)
def _next(
    states: NDArray[Any],
    others: NDArray[Any],
    busy: NDArray[Any],
    own_busy: NDArray[Any],
    device: int,
    place: int,
    ends: NDArray[Any],
) -> int:
    """Return the next place of a ready parcel of a free device whose other side is free, -1 if there is none."""
    if own_busy[device]:
        return -1
    while place < ends[device]:
        if states[place] == READY and not busy[others[place]]:
            return int(place)
        place += 1
    return -1


@njit(cache=True, nogil=True)
def _skipped(states: NDArray[Any], place: int, end: int) -> int:
    """Return the first place of a parcel that has not begun."""
    while place < end and states[place] == BEGUN:
        place += 1
    return place


@njit(cache=True, nogil=True)
def _event(kind: int, what: int, device: int) -> int:
    """Return a number for an event: events of one time come in the order of kind, parcel or stage, and device."""
    return int(kind * _KIND + what * _WHAT + device)


@njit(cache=True, nogil=True)
def _push(keys: NDArray[Any], numbers: NDArray[Any], size: int, key: float, number: int) -> int:
    """Put an entry on a heap of (key, number), the least first; return its new size."""
    place = size
    while place > 0:
        above = (place - 1) // 4
        if keys[above] < key or (keys[above] == key and numbers[above] <= number):
            break
        keys[place], numbers[place] = keys[above], numbers[above]
        place = above
    keys[place], numbers[place] = key, number
    return size + 1


@njit(cache=True, nogil=True)
def _pop(keys: NDArray[Any], numbers: NDArray[Any], size: int) -> int:
    """Take the least entry off a heap; return its new size."""
    if size > 1:
        _sift(keys, numbers, size - 1, keys[size - 1], numbers[size - 1])
    return size - 1


@njit(cache=True, nogil=True)
def _sift(keys: NDArray[Any], numbers: NDArray[Any], size: int, key: float, number: int) -> None:
    """Replace the least entry of a heap."""
    place = 0
    while True:
        least = 4 * place + 1
        if least >= size:
            break
        for below in range(least + 1, min(least + 4, size)):
            if keys[below] < keys[least] or (keys[below] == keys[least] and numbers[below] < numbers[least]):
                least = below
        if key < keys[least] or (key == keys[least] and number <= numbers[least]):
            break
        keys[place], numbers[place] = keys[least], numbers[least]
        place = least
    keys[place], numbers[place] = key, number


@njit(cache=True, nogil=True)
def _computed(computing: NDArray[Any], device: int, now: float, seconds: float) -> float:
    """Return when a device has computed what it can begin now, after what it computes already; no work never waits."""
    if seconds == 0:
        return now
    computing[device] = max(computing[device], now) + seconds
    return float(computing[device])
