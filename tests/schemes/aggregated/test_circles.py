"""Secure sums in large fleets: masks and shares within circles, who may vanish, and what a device refuses."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.cipher.masks.graph import COMPLETE, DEGREE, MaskGraph
from codedfl.cipher.seals import Z_32
from codedfl.errors import CipherError, LostDevicesError
from codedfl.schemes import Message, Round, Work
from codedfl.schemes.aggregated.cohort import Cohort
from codedfl.schemes.aggregated.costs import sum_rounds
from codedfl.schemes.aggregated.masker import Masker
from codedfl.schemes.aggregated.promises import survived_losses, tolerated
from codedfl.schemes.aggregated.server import MaskedSum, Threshold
from codedfl.schemes.messages import message_bits
from schemes.aggregated.secure_sum import answered, words
from schemes.aggregated.test_signed import identity
from tiny import is_one_sentence

N, K = 20, 8
GRAPH = MaskGraph(N, K)
COHORT = Cohort(N, Threshold(), degree=K, digest=b"a session")
T = COHORT.threshold_of(range(N))


class Drive:
    """A sum of devices that vanish when they are told to, with every message that was sent."""

    def __init__(self, cohort: Cohort = COHORT) -> None:
        n = cohort.devices
        self.arrays = words(Z_32, {"x": (3,)}, n, seed=0)
        self.maskers = {device: Masker(device, cohort) for device in range(n)}
        for device, masker in self.maskers.items():
            masker.identify(identity(device, range(n)))
        requests: dict[int, Message] = {device: {} for device in range(n)}
        counts = {"awaited": n, "needed": 0, "signed": cohort.signed}
        self.server = MaskedSum(1, requests, cohort.threshold, Z_32, graph=cohort.graph, **counts)
        self.questions: list[Round] = []
        self.work: list[dict[int, Work]] = []
        self.replies: list[dict[int, Message]] = []

    def opened(self, vanishing: Mapping[int, int]) -> Mapping[str, np.ndarray]:
        """Return the sum; a device answers questions 0, 1, ... up to the one at which it vanishes."""
        question: Round | None = self.server.begin()
        while question is not None:
            self.ask(question, vanishing)
            question = self.server.follow_up(self.replies[-1])
        return self.server.opened(self.replies[-1], Work())

    def ask(self, question: Round, vanishing: Mapping[int, int]) -> None:
        work = {device: Work() for device in question.requests}
        number = len(self.questions)
        self.questions.append(question)
        self.work.append(work)
        self.replies.append(
            {
                device: answered(self.maskers[device], request, self.arrays[device], Z_32, work[device])
                for device, request in question.requests.items()
                if vanishing.get(device, 9) > number
            }
        )

    def total(self, devices: Sequence[int]) -> np.ndarray:
        return np.sum([self.arrays[device]["x"] for device in devices], axis=0, dtype=np.uint32)


def signed_cohort() -> Cohort:
    return replace(COHORT, signed=True)


class TestGraph:
    @given(st.integers(4, 60), st.integers(1, 12))
    def test_neighbours_are_mutual_and_as_many_as_asked_for(self, devices: int, half: int) -> None:
        graph = MaskGraph.of(devices, 2 * half)
        for device in range(devices):
            circle = graph.circle(device)
            assert len(circle) == len(set(circle)) == graph.size
            assert list(circle) == sorted(circle)
            assert device in circle
            assert all(device in graph.circle(other) for other in circle)

    @given(st.integers(6, 40), st.integers(1, 4), st.sets(st.integers(0, 39)))
    def test_counts_within_circles(self, devices: int, half: int, among: set[int]) -> None:
        graph, there = MaskGraph.of(devices, 2 * half), {device for device in among if device < devices}
        expected = [len(there.intersection(graph.circle(device))) for device in range(devices)]
        assert graph.present(there).tolist() == expected

    @pytest.mark.parametrize(("devices", "degree"), [(9, 4), (10, 4), (11, 6), (12, 6)])
    def test_it_takes_k_devices_to_cut_it(self, devices: int, degree: int) -> None:
        graph = MaskGraph(devices, degree)
        assert all(
            _connected(graph, set(range(devices)) - set(cut)) for cut in combinations(range(devices), degree - 1)
        )

    def test_small_fleets_mask_with_everyone(self) -> None:
        assert MaskGraph.of(COMPLETE, None).complete
        assert MaskGraph.of(COMPLETE + 1, None).degree == DEGREE
        assert MaskGraph.of(20, 19).complete
        assert MaskGraph.of(20, 7).degree == 8

    def test_devices_of_one_kind_are_spread(self) -> None:
        """A quarter of all devices with consecutive numbers is a quarter of every circle, within three devices."""
        graph = MaskGraph(1000, 64)
        found = graph.present(range(300, 550))
        assert abs(found - 65 / 4).max() <= 3


def _connected(graph: MaskGraph, devices: set[int]) -> bool:
    reached, waiting = set[int](), {min(devices)}
    while waiting:
        reached |= waiting
        waiting = {other for device in waiting for other in graph.circle(device) if other in devices} - reached
    return reached == devices


class TestSums:
    @pytest.mark.parametrize("signed", [False, True])
    @settings(max_examples=15, deadline=None)
    @given(data=st.data())
    def test_any_devices_that_a_circle_survives_may_vanish(self, signed: bool, data: st.DataObject) -> None:
        """At any question; of those that sent masked replies the sum is right, to the last bit."""
        most = survived_losses(GRAPH, Threshold())
        gone = data.draw(st.dictionaries(st.integers(0, N - 1), st.integers(0, 3), max_size=most))
        drive = Drive(replace(COHORT, signed=signed))
        found = drive.opened(gone)
        left = [device for device in range(N) if gone.get(device, 9) > 2]
        assert list(drive.server.survivors) == left
        assert np.array_equal(found["x"], drive.total(left))

    def test_nobody_is_told_of_devices_outside_its_circle(self) -> None:
        drive = Drive()
        drive.opened({3: 2})
        for question in drive.questions[1:]:
            for device, request in question.requests.items():
                for name in ("members", "senders", "survivors", "dropped"):
                    assert set(request.get(name, np.zeros(0)).tolist()) <= set(GRAPH.circle(device))

    @pytest.mark.parametrize("question", [2, 3])
    def test_a_circle_with_too_few_left_ends_the_sum(self, question: int) -> None:
        """Whether masked replies or shares are missing."""
        gone = dict.fromkeys([d for d in GRAPH.circle(0) if d][: K + 2 - T], question)
        with pytest.raises(LostDevicesError, match=r"of the circle of device") as raised:
            Drive().opened(gone)
        assert is_one_sentence(str(raised.value))

    @pytest.mark.parametrize(("devices", "degree"), [(12, 8), (20, 8), (30, 12)])
    def test_costs_are_those_of_the_protocol(self, devices: int, degree: int) -> None:
        cohort = Cohort(devices, Threshold(), degree=degree)
        drive, opening = Drive(cohort), Work()
        drive.opened({})
        drive.server.opened(drive.replies[-1], opening)
        counted = sum_rounds(cohort.graph, Threshold(), 3, 32)
        for each, question, work, replies in zip(counted.each, drive.questions, drive.work, drive.replies, strict=True):
            for device, request in question.requests.items():
                found = message_bits(request), work[device].macs, message_bits(replies[device])
                assert found == each
        assert opening.macs == devices * counted.server

    def test_messages_of_a_device_do_not_grow_with_the_fleet(self) -> None:
        sizes = []
        for devices in (20, 40):
            drive = Drive(Cohort(devices, Threshold(), degree=K))
            drive.opened({})
            sizes.append([max(map(message_bits, question.requests.values())) for question in drive.questions])
        assert sizes[0] == sizes[1]


class TestRefusals:
    """A deviating server; the graph follows from N and k, which devices know."""

    def begun(self, drive: Drive, rounds: int) -> Round:
        question: Round | None = drive.server.begin()
        for _ in range(rounds):
            assert question is not None
            drive.ask(question, {})
            question = drive.server.follow_up(drive.replies[-1])
        assert question is not None
        return question

    def refused(self, drive: Drive, device: int, request: Message, match: str) -> None:
        with pytest.raises(CipherError, match=match) as raised:
            answered(drive.maskers[device], request, drive.arrays[device], Z_32)
        assert is_one_sentence(str(raised.value))

    def test_a_member_outside_the_circle(self) -> None:
        drive = Drive()
        question = self.begun(drive, 1)
        stranger = next(device for device in range(N) if device not in GRAPH.circle(0))
        request = dict(question.requests[0])
        request["members"] = np.append(request["members"][:-1], np.int32(stranger))
        self.refused(drive, 0, request, f"told of device {stranger}, which is not in its cohort")

    def test_fewer_members_than_the_threshold_of_the_circle(self) -> None:
        drive = Drive()
        request = {name: array[: T - 1] for name, array in self.begun(drive, 1).requests[0].items()}
        self.refused(drive, 0, request, f"fewer than the threshold of {T}")

    def test_keys_that_no_neighbour_signed(self) -> None:
        drive = Drive(signed_cohort())
        request = dict(self.begun(drive, 1).requests[0])
        request["@signatures"] = request["@signatures"][::-1].copy()
        self.refused(drive, 0, request, "not signed by its pinned key")

    def masked(self) -> tuple[Drive, int]:
        """Masked replies of all but one, whose neighbour device 0 is asked."""
        drive, lost = Drive(signed_cohort()), next(device for device in GRAPH.circle(0) if device)
        question = self.begun(drive, 2)
        drive.ask(question, {lost: 0})
        return drive, lost

    def test_shares_of_a_key_without_a_signed_list(self) -> None:
        drive, lost = self.masked()
        near = [device for device in GRAPH.circle(0) if device != lost]
        request: Message = {"survivors": np.array(near, np.int32), "dropped": np.array([lost], np.int32)}
        nobody = {"@signers": np.zeros(0, np.int32), "@signatures": np.zeros((0, 64), np.uint8)}
        absent = {"@absent": np.array([lost], np.int32)}
        self.refused(drive, 0, {**request, **nobody, **absent}, f"fewer than the threshold of {T}")

    def test_two_lists(self) -> None:
        """Neighbours that signed one list do not open a sum by another, though it is as good as theirs."""
        drive, lost = self.masked()
        question = drive.server.follow_up(drive.replies[-1])
        assert question is not None
        drive.ask(question, {})
        last = drive.server.follow_up(drive.replies[-1])
        assert last is not None
        request = dict(last.requests[0])
        other = next(d for d in range(N) if d not in GRAPH.circle(0))
        request["@absent"] = np.array(sorted([lost, other]), np.int32)
        self.refused(drive, 0, request, f"0 devices signed this list, fewer than the threshold of {T}")
        assert "shares" in answered(drive.maskers[0], last.requests[0], drive.arrays[0], Z_32), (
            "a refusal costs nothing"
        )

    def test_a_list_that_leaves_a_circle_empty(self) -> None:
        """A device looks at the whole list, also at circles far from its own."""
        drive, lost = self.masked()
        far = max(range(N), key=lambda device: len(set(GRAPH.circle(device)) - set(GRAPH.circle(0))))
        absent = [lost, *sorted(set(GRAPH.circle(far)) - set(GRAPH.circle(0)))]
        near = np.array([device for device in GRAPH.circle(0) if device != lost], np.int32)
        request: Message = {"listed": near, "@absent": np.array(sorted(absent), np.int32)}
        self.refused(drive, 0, request, "devices in some circle")

    def test_a_list_that_contradicts_itself(self) -> None:
        drive, lost = self.masked()
        near = np.array([device for device in GRAPH.circle(0) if device != lost], np.int32)
        self.refused(drive, 0, {"listed": near, "@absent": np.zeros(0, np.int32)}, "tell it of one list")

    def test_both_secrets_of_a_device(self) -> None:
        drive = Drive()
        near = np.array(GRAPH.circle(0), np.int32)
        drive.ask(self.begun(drive, 2), {})
        self.refused(drive, 0, {"survivors": near, "dropped": near[:1]}, "both the mask and the key")


@pytest.mark.parametrize("degree", [8, 12, 16])
def test_devices_that_collude_do_not_cut_survivors_of_an_accepted_list(degree: int) -> None:
    """The derivation of docs/secagg.md, against all pairs of gaps on a ring: places of devices that are gone or lie."""
    n = 3 * degree
    graph, threshold = MaskGraph(n, degree), Threshold()
    most = tolerated(graph, threshold)[0]
    half, allowed = degree // 2, graph.size - threshold.within(graph)
    for second in range(half, n - half + 1):
        places = {*range(half), *((second + place) % n for place in range(half))}
        if len(places) < degree or _connected(graph, {int(graph.ring[p]) for p in set(range(n)) - places}):
            continue
        # as many of the cut as a list may call absent, the rest must collude
        gone = {int(graph.ring[place]) for place in [*range(half)][:allowed]}
        gone |= {int(graph.ring[(second + place) % n]) for place in range(half - allowed, half)[:allowed]}
        colluding = len(places) - len(gone)
        assert colluding > most
