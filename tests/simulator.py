"""An independent model of time: the server, the devices and the links of a training as SimPy processes.

The simulator is given what was asked and sent (the costs of a training) and draws its random numbers from the streams
of the delay model; when things happen is left to events. Every try of a transmission is an event of its own.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import simpy

from codedfl.network import DelayModel, OverlappingStage, RoundCosts, TransferChance, TransferCosts
from codedfl.training import History

Steps = list[tuple[int, int, str, float, float]]
"""Epoch, device, activity, begin and end."""
Happening = Generator[simpy.Event, Any, None]


class Simulator:
    """Replays the costs of a training in one draw."""

    def __init__(self, delays: DelayModel, *, seed: int, draw: int, parallel: bool = False) -> None:
        self._delays = delays
        self._seed = seed
        self._draw = draw
        self._parallel = parallel
        self._env = simpy.Environment()
        self._inbox = simpy.Store(self._env)
        self._working: dict[int, simpy.Process] = {}
        self._epoch = 0
        self.events = 0
        """Delays that have passed: no time is the sum of more numbers."""
        self.ends: list[float] = []
        self.steps: Steps = []
        self.replied: list[list[int]] = []
        """Who replied to each question, in the order of arrival."""

    def run(self, history: History) -> None:
        """Let the whole training pass."""
        self._env.run(self._env.process(self._server(history)))

    def _server(self, history: History) -> Happening:
        for self._epoch, numbers in enumerate(history.questions(), start=1):
            for stages in history.overlapping_after(self._epoch - 1):
                if len(stages) == 1:
                    yield from self._stage(stages[0].number, stages[0].transfers)
                else:
                    yield from self._overlap(stages)
            for question, number in enumerate(numbers):
                yield from self._round(question, history.rounds[number])
            self.ends.append(self._env.now)
            if handed := history.handovers_after(self._epoch):
                yield from self._hand_over(handed)
        self._stop_working()
        yield self._env.timeout(0)  # who was stopped notes until when it worked

    # --- rounds ---

    def _round(self, question: int, costs: RoundCosts) -> Happening:
        if not costs.standing:
            self._stop_working()
            self._inbox = simpy.Store(self._env)
        began = self._env.now
        chance = self._delays.chance(self._seed, self._epoch, self._draw, 1, question)
        for place, device in enumerate(costs.asked.tolist()):
            assert device not in self._working, "who has an open question is not asked"
            luck = [float(each[0, device]) for each in (chance.down_tries, chance.setup, chance.up_tries)]
            bits = int(costs.down_bits[place]), int(costs.macs[place]), int(costs.up_bits[place])
            self._working[device] = self._env.process(self._reply(self._epoch, device, bits, luck))
        yield from self._wait(costs, began)
        yield from self._pass(costs.server_macs / self._delays.server_mac_rate)

    def _reply(self, epoch: int, device: int, costs: tuple[int, int, int], luck: Sequence[float]) -> Happening:
        (down_bits, macs, up_bits), (down_tries, setup, up_tries), delays = costs, luck, self._delays
        try:
            with self._noted(epoch, device, "receive model"):
                yield from self._transmit(down_bits, delays.down_rate[device], down_tries)
            with self._noted(epoch, device, "compute"):
                yield from self._compute(device, macs, setup)
            with self._noted(epoch, device, "send reply"):
                yield from self._transmit(up_bits, delays.up_rate[device], up_tries)
        except simpy.Interrupt:
            return
        del self._working[device]
        self._inbox.put(device)

    def _wait(self, costs: RoundCosts, began: float) -> Happening:
        replied: list[int] = []
        self.replied.append(replied)
        deadline = None
        if np.isfinite(costs.deadline):
            deadline = self._env.timeout(max(0.0, began + costs.deadline - self._env.now))
            self.events += 1
        while len(replied) < costs.quorum:
            arrival = self._inbox.get()
            late = deadline is not None and deadline.processed
            if late and len(replied) >= costs.least:
                arrival.cancel()
                return
            yield arrival if deadline is None or late else arrival | deadline
            if arrival.triggered:
                replied.append(arrival.value)
            else:
                arrival.cancel()

    def _stop_working(self) -> None:
        for process in self._working.values():
            process.interrupt()
        self._working.clear()

    # --- stages and hand-overs ---

    def _stage(self, stage: int, transfers: Sequence[TransferCosts]) -> Happening:
        senders, recipients = (
            np.array([getattr(costs, name) for costs in transfers], np.int64) for name in ("sender", "recipient")
        )
        chance = self._delays.stage_chance(self._seed, stage, self._draw, 1, senders, recipients)
        direct, up, down = (each[0].tolist() for each in (chance.parcel_tries, chance.up_tries, chance.relay_tries))
        over_server = [costs.uploaded or costs.relayed for costs in transfers]
        tries = list(zip(np.where(over_server, up, direct).tolist(), down, strict=True))
        # grants of a stage take their expected time
        yield from self._transfers(transfers, chance, tries, only_sends=True, expected_grants=True)

    def _overlap(self, stages: Sequence[OverlappingStage]) -> Happening:
        """Let devices send on what is complete; after every change, all ready parcels are looked at in their order."""
        env, epoch = self._env, self._epoch
        parcels = [(stage, place) for stage in stages for place in range(len(stage.transfers))]
        ready: set[int] = set()
        begun: set[int] = set()
        busy: set[tuple[str, int]] = set()
        processors = [simpy.Resource(env) for _ in range(self._delays.devices)]
        left = {
            (stage.number, device): len(_by(stage.transfers, "recipient").get(device, ()))
            for stage in stages
            for device in range(self._delays.devices)
        }
        absorbed = {key: env.event() for key in left}
        changed = env.event()
        luck = {
            stage.number: self._delays.stage_chance(
                self._seed, stage.number, self._draw, 1, np.array([costs.sender for costs in stage.transfers])
            )
            for stage in stages
        }

        def change() -> None:
            nonlocal changed
            changed, old = env.event(), changed
            old.succeed()

        def grant(device: int) -> Happening:
            bits = sum(costs.grant_bits for stage in stages for costs in stage.transfers if costs.sender == device)
            one_try = bits * (1 + self._delays.overhead) / self._delays.down_rate[device]
            yield from self._pass(one_try / (1 - self._delays.loss[device]))

        def compute(device: int, macs: int, setup: float) -> Happening:
            if macs:
                with processors[device].request() as access:
                    yield access
                    yield from self._compute(device, macs, setup)

        def prepare(stage: OverlappingStage, device: int) -> Happening:
            yield granted[device]
            for number in stage.after:
                yield absorbed[number, device]
            own = _by(stage.transfers, "sender").get(device, [])
            macs = sum(stage.transfers[place].export_macs for place in own)
            yield from compute(device, macs, float(luck[stage.number].export_setup[0, device]))
            ready.update(number for number, (each, place) in enumerate(parcels) if each is stage and place in own)
            change()

        def send(number: int) -> Happening:
            stage, place = parcels[number]
            costs = stage.transfers[place]
            rate = min(self._delays.d2d_rate[costs.sender], self._delays.d2d_rate[costs.recipient])
            with self._noted(epoch, costs.sender, "send"):
                yield from self._transmit(costs.parcel_bits, rate, float(luck[stage.number].parcel_tries[0, place]))
            busy.difference_update({("send", costs.sender), ("take", costs.recipient), ("channel", 0)})
            left[stage.number, costs.recipient] -= 1
            if left[stage.number, costs.recipient] == 0:
                env.process(absorb(stage, costs.recipient))
            change()

        def absorb(stage: OverlappingStage, device: int) -> Happening:
            own = _by(stage.transfers, "recipient").get(device, [])
            macs = sum(stage.transfers[place].absorb_macs for place in own)
            yield from compute(device, macs, float(luck[stage.number].absorb_setup[0, device]))
            absorbed[stage.number, device].succeed()

        granted = [env.process(grant(device)) for device in range(self._delays.devices)]
        for stage in sorted(stages, key=lambda each: len(each.after) > 0):  # who comes after nothing computes first
            for device in range(self._delays.devices):
                env.process(prepare(stage, device))
                if left[stage.number, device] == 0:
                    absorbed[stage.number, device].succeed()
        while len(begun) < len(parcels) or busy:
            yield changed
            while env.peek() == env.now:  # all that happens now comes first
                yield env.timeout(0)
            for number in sorted(ready - begun):
                costs = parcels[number][0].transfers[parcels[number][1]]
                needs = {("send", costs.sender), ("take", costs.recipient)}
                needs |= {("channel", 0)} if self._delays.shared_channel else set()
                if not needs & busy:
                    busy |= needs
                    begun.add(number)
                    env.process(send(number))
        yield env.all_of(absorbed.values())

    def _hand_over(self, transfers: Sequence[TransferCosts]) -> Happening:
        chance = self._delays.handover_chance(self._seed, self._epoch, self._draw, 1)
        tries = [(float(chance.parcel_tries[0, costs.sender]), 0.0) for costs in transfers]
        yield from self._transfers(transfers, chance, tries, parallel=self._parallel)

    def _transfers(
        self,
        transfers: Sequence[TransferCosts],
        chance: TransferChance,
        tries: Sequence[tuple[float, float]],
        *,
        parallel: bool = False,
        only_sends: bool = False,
        expected_grants: bool = False,
    ) -> Happening:
        env, taken = self._env, [self._env.event() for _ in transfers]
        before = [  # the parcel that the same recipient takes before this one
            None
            if parallel or costs.uploaded
            else next((n for n in reversed(range(number)) if transfers[n].recipient == costs.recipient), None)
            for number, costs in enumerate(transfers)
        ]
        epoch = self._epoch
        direct = [number for number, costs in enumerate(transfers) if not (costs.uploaded or costs.relayed)]
        shared, called = self._delays.shared_channel, [env.event() for _ in transfers]
        medium = simpy.Resource(env, 1 if shared else len(transfers))

        def call() -> Happening:
            """Call on direct parcels by their numbers, each when the one before has arrived."""
            for number in direct:
                called[number].succeed()
                yield taken[number]

        def send(device: int, own: Sequence[int]) -> Happening:
            grant_bits, macs = (sum(getattr(transfers[n], name) for n in own) for name in ("grant_bits", "export_macs"))
            with self._noted(epoch, device, "grant", kept=not only_sends):
                if expected_grants:
                    one_try = grant_bits * (1 + self._delays.overhead) / self._delays.down_rate[device]
                    yield from self._pass(one_try / (1 - self._delays.loss[device]))
                else:
                    yield from self._transmit(
                        grant_bits, self._delays.down_rate[device], float(chance.grant_tries[0, device])
                    )
            with self._noted(epoch, device, "encrypt", kept=not only_sends):
                yield from self._compute(device, macs, float(chance.export_setup[0, device]))
            for number in own:
                costs, (up, down) = transfers[number], tries[number]
                if costs.uploaded:
                    with self._noted(epoch, device, "send"):
                        yield from self._transmit(costs.parcel_bits, self._delays.up_rate[device], up)
                    taken[number].succeed()
                elif costs.relayed:
                    began = env.now
                    yield from self._transmit(costs.parcel_bits, self._delays.up_rate[device], up)
                    env.process(relay(number, began, down))
                else:
                    if before[number] is not None:
                        yield taken[before[number]]
                    rate = min(self._delays.d2d_rate[device], self._delays.d2d_rate[costs.recipient])
                    if shared:
                        yield called[number]
                    with medium.request() as access:
                        yield access
                        with self._noted(epoch, device, "send"):
                            yield from self._transmit(costs.parcel_bits, rate, up)
                    taken[number].succeed()

        def relay(number: int, began: float, tries: float) -> Happening:
            costs = transfers[number]
            if before[number] is not None:
                yield taken[before[number]]
            yield from self._transmit(costs.parcel_bits, self._delays.down_rate[costs.recipient], tries)
            self.steps.append((epoch, costs.sender, "send", began, env.now))
            taken[number].succeed()

        def take(device: int, own: Sequence[int]) -> Happening:
            yield env.all_of([taken[number] for number in own])
            macs = sum(transfers[number].absorb_macs for number in own)
            with self._noted(epoch, device, "absorb", kept=not only_sends):
                yield from self._compute(device, macs, float(chance.absorb_setup[0, device]))

        processes = [env.process(send(device, own)) for device, own in _by(transfers, "sender").items()]
        processes += [
            env.process(take(device, own)) for device, own in _by(transfers, "recipient").items() if device >= 0
        ]
        processes += [env.process(call())] if shared else []
        yield env.all_of([*processes, *taken])

    # --- what takes time ---

    def _pass(self, seconds: float) -> Happening:
        self.events += 1
        yield self._env.timeout(seconds)

    def _transmit(self, bits: int, rate: float, tries: float) -> Happening:
        for _ in range(int(tries)):
            yield from self._pass(bits * (1 + self._delays.overhead) / rate)

    def _compute(self, device: int, macs: int, setup: float) -> Happening:
        if macs:
            work = macs / self._delays.mac_rate[device]
            yield from self._pass(work)
            mean = self._delays.setup_ratio[device] * work + self._delays.setup_seconds[device]
            yield from self._pass(setup * mean)

    @contextmanager
    def _noted(self, epoch: int, device: int, activity: str, *, kept: bool = True) -> Generator[None, None, None]:
        """Note a step that takes time, also one that is stopped."""
        began = self._env.now
        try:
            yield
        finally:
            if kept and self._env.now > began:
                self.steps.append((epoch, device, activity, began, self._env.now))


def _by(transfers: Sequence[TransferCosts], end: str) -> dict[int, list[int]]:
    numbers: dict[int, list[int]] = {}
    for number, costs in enumerate(transfers):
        numbers.setdefault(getattr(costs, end), []).append(number)
    return numbers
