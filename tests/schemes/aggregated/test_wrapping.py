"""What secure aggregation makes of the scheme inside it: costs, losses, outliers, noisy sums and what is said of it."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.cipher.masks.graph import MaskGraph
from codedfl.cipher.seals import Z_64
from codedfl.errors import CipherError, ScenarioError
from codedfl.network import RoundCosts
from codedfl.scenario import Privacy
from codedfl.schemes import Public, Work
from codedfl.schemes.aggregated.costs import question_costs
from codedfl.schemes.aggregated.device import form_message
from codedfl.schemes.aggregated.noisy import kept_bits
from codedfl.schemes.aggregated.server import MaskedSum, Threshold
from codedfl.schemes.private import noisy_shard
from codedfl.schemes.secrecy import ADVERSARIES, ASSETS
from codedfl.task import Problem
from schemes.residues import fleet
from tiny import conversed, is_one_sentence, placed, problem, scenario, trained

SIZES = (4, 7, 3, 5, 9)
N, D, C = len(SIZES), 6, 2
PRIVATE = {"privacy.epsilon": 5.0, "privacy.clip_targets": 30.0}


@cache
def shared() -> Problem:
    return problem(SIZES, features=D, outputs=C)


def wanted(inner: str = "conventional", changes: dict[str, Any] | None = None) -> Any:
    base = {"scheme": "secagg", "schemes.secagg.inner": inner, "fleet.devices": fleet(*[1e6] * N)}
    return scenario({**base, "schemes.minibatch.parts": 3, "training.epochs": 3, **(changes or {})})


def created(inner: str = "conventional", changes: dict[str, Any] | None = None) -> Any:
    return schemes.create(wanted(inner, changes), shared())


class TestCosts:
    @pytest.mark.parametrize("inner", ["conventional", "minibatch"])
    def test_counted_are_those_of_a_run(self, inner: str) -> None:
        """All of them; the first epoch of a run is computed beforehand, but for the protocol."""
        history = trained(shared(), wanted(inner)).history
        counted = created(inner).counted(shared().shards, 3)
        assert counted is not None
        for number, (rounds, found) in enumerate(zip(history.questions(), counted.epochs, strict=True)):
            run = [history.rounds[each] for each in rounds]
            if number:
                assert [costs.key() for costs in run] == [costs.key() for costs in found]
            assert [costs.up_bits.tolist() for costs in run] == [costs.up_bits.tolist() for costs in found]

    def test_what_cannot_be_counted(self) -> None:
        """Who replies, and so the sum, differs from draw to draw; noisy replies are other products."""
        assert created("drop-slowest").counted(shared().shards, 2) is None
        assert created("deadline").counted(shared().shards, 2) is None
        assert created("conventional", PRIVATE).counted(shared().shards, 2) is None


class TestLosses:
    def test_averages_survive_what_the_threshold_leaves(self) -> None:
        """Four of five devices open a sum, unless the option says otherwise."""
        assert created().survives_losses == created("drop-slowest").survives_losses == 1
        assert created(changes={"schemes.secagg.threshold": 3}).survives_losses == 2
        assert created(changes={"schemes.secagg.threshold": 5}).survives_losses == 0

    def test_no_more_than_the_inner_scheme_where_it_needs_all(self) -> None:
        assert created("sealed").survives_losses == created("sealed").inner.survives_losses == 0


class TestOutliers:
    PUBLIC = Public(
        SIZES,
        D,
        C,
        np.dtype("float64"),
        largest_feature=8.0,
        claims=((1.0, 1.0),) * 4 + ((8.0, 1.0),),
    )

    @pytest.mark.parametrize("inner", ["conventional", "drop-slowest"])
    def test_steps_that_are_too_coarse_for_the_others_are_refused(self, inner: str) -> None:
        """By hand: half a step of 2^-61 of m F T and of m F^2, for each device, against m and sqrt(d) m at F = 1."""
        half = N / 2 * 2.0**-61
        error = half * 8 + np.sqrt(D) * half * 64
        schemes.build(wanted(inner), replace(self.PUBLIC, bound_share=error * 1.001))
        with pytest.raises(ScenarioError, match="device 4 has features up to 8, where 1 is the median") as raised:
            schemes.build(wanted(inner), replace(self.PUBLIC, bound_share=error * 0.999))
        assert is_one_sentence(str(raised.value))


class TestNoise:
    def test_every_epoch_is_of_the_same_noisy_sums_to_the_last_bit(self) -> None:
        """Models are rounded to the steps that are left of a sum of 2^62, and then all products are exact."""
        scheme = created(changes=PRIVATE)
        release = scheme.public.release
        shards = [noisy_shard(shard, release, bytes([k]) * 32) for k, shard in enumerate(shared().shards)]
        gram_bits, side_bits = kept_bits(release)
        gram, side = (
            sum(np.rint(np.ldexp(each, bits)).astype(np.int64).astype(object) for each in parts)
            for parts, bits in (([s.gram for s in shards], gram_bits), ([s.moments for s in shards], side_bits))
        )
        server, devices = placed(scheme, shards)
        rng = np.random.default_rng(3)
        for epoch, size in enumerate((1.0, 1e-3), start=1):
            model = size * rng.standard_normal((D, C))
            found = conversed(server, devices, epoch, model)
            question = scheme.server().ask(epoch, model)
            bound = scheme.inner.reply_sum(epoch, {"model": model})
            bits = 62 - np.frexp(bound)[1] - gram_bits
            steps = np.rint(np.ldexp(model, bits))
            assert np.array_equal(question.point, np.ldexp(steps, -bits))
            whole = steps.astype(np.int64).astype(object)
            exact = (gram @ whole - side * 2 ** int(bits + gram_bits - side_bits)).astype(float)
            assert np.array_equal(found, np.ldexp(exact, -(bits + gram_bits)) / sum(SIZES))

    def test_without_noise_models_are_sent_as_they_are(self) -> None:
        model = np.full((D, C), 1 / 3)
        question = created().server().ask(2, model)
        assert question.point is None
        assert [list(request) for request in question.requests.values()] == [["asked"]] * N

    def test_devices_round_what_they_multiply_once(self) -> None:
        """Gram matrices and right-hand sides to half a step each, and replies not at all."""
        scheme = created(changes=PRIVATE)
        gram, side = (N / 2 * 2.0**-bits for bits in kept_bits(scheme.public.release))
        assert gram != side
        found, inner = scheme.rounding, scheme.inner.rounding
        assert found.uniform == (gram, side)
        assert (found.gram, found.moments) == (inner.gram + gram, inner.moments + side)
        assert found.joint == inner.joint == 0.0

    def test_replies_are_in_steps_of_a_right_hand_side_at_most(self) -> None:
        scheme = created(changes=PRIVATE)
        release = scheme.public.release
        gram, side = release.coarsest_steps
        assert gram < side / 2
        bits = int(np.ceil(-np.log2(side)))
        shards = [noisy_shard(shard, release, bytes(32)) for shard in shared().shards]
        for asked in (bits, bits - 1):
            devices = [scheme.device(k, shard) for k, shard in enumerate(shards)]
            request = {"model": np.zeros((D, C)), **form_message(asked)}
            server = MaskedSum(1, dict.fromkeys(range(N), request), Threshold(N), Z_64, awaited=N, needed=N)
            question: Any = server.begin()
            for number in range(3):
                if number == 2 and asked < bits:
                    with pytest.raises(CipherError, match="shows more than its noise hides"):
                        devices[0].reply(1, question.requests[0], Work())
                    break
                replies = {k: devices[k].reply(1, each, Work()) for k, each in question.requests.items()}
                question = server.follow_up(replies)

    def test_residues_carry_their_noise(self) -> None:
        """Of a scheme whose replies are residues: at a model of zeros, the right-hand sides with noise."""
        scheme = created("sealed", PRIVATE)
        shards = [noisy_shard(s, scheme.public.release, bytes([k]) * 32) for k, s in enumerate(shared().shards)]
        found = conversed(*placed(scheme, shards), 1, np.zeros((D, C)))
        side = sum(shard.moments for shard in shards)
        np.testing.assert_allclose(found, -side / sum(SIZES), rtol=1e-6, atol=1e-9 * np.abs(side).max())

    @pytest.mark.parametrize(
        ("inner", "privacy", "said"),
        [
            ("conventional", {}, None),
            ("conventional", {"release": "each-epoch"}, None),
            ("conventional", {"losses": 1}, "privacy.losses must be 0"),
            ("sealed", {}, None),
            ("sealed", {"release": "each-epoch"}, "devices of 'sealed' do not clip gradients"),
            ("minibatch", {}, "sums of 'minibatch' are over changing data"),
        ],
    )
    def test_which_noise_it_takes(self, inner: str, privacy: dict[str, Any], said: str | None) -> None:
        found = created(inner).refuses_noise(Privacy(epsilon=1.0, **privacy))
        assert (found is None) if said is None else (found is not None and found.startswith(said))

    def test_a_threshold_that_leaves_out_noise_is_refused(self) -> None:
        with pytest.raises(ScenarioError, match=r"schemes\.secagg\.threshold = 4 opens sums without the noise of 1"):
            created(changes=PRIVATE | {"schemes.secagg.threshold": 4})


class TestRounds:
    def test_who_hands_over_masks_with_everyone_who_is_left(self) -> None:
        wide = {"fleet.devices": fleet(*[1e6] * 12), "schemes.secagg.neighbours": 8}
        assert schemes.nominal(wanted("conventional", wide)).graph == MaskGraph(12, 8)
        assert schemes.nominal(wanted("sealed", wide)).graph == MaskGraph(12)

    def test_the_last_device_replies_in_one_round_and_two_in_four(self) -> None:
        each = np.ones(2, np.int64)
        sharing = created("sealed").sharing
        for active in (1, 2):
            alone = RoundCosts(np.arange(active), *(each[:active],) * 3, quorum=active, server_macs=7)
            found = sharing.rounds(active, alone, {"x": np.zeros(3, np.uint32)})
            expected = (alone,) if active == 1 else question_costs(2, Threshold(), alone, {"x": np.zeros(3, np.uint32)})
            assert [costs.key() for costs in found] == [costs.key() for costs in expected]
        assert created().sharing is None

    @pytest.mark.parametrize("inner", ["conventional", "sealed"])
    def test_devices_that_hand_over_are_asked_whose_data_they_hold_where_they_sign(self, inner: str) -> None:
        plain = created(inner)
        public = replace(plain.public, signed=True, nonces=tuple(bytes([k] * 16) for k in range(N)))
        server = plain.with_public(public).server()
        server.set_up()
        (layouts,) = {tuple(sorted(each)) for each in server.ask(2, np.zeros((D, C))).expected.values()}
        assert layouts == (("@signature", "keys") if inner == "conventional" else ("@holdings", "@signature", "keys"))


class TestWords:
    def verdicts(self, scheme: Any) -> dict[tuple[str, str], str]:
        return {(cell.adversary, cell.asset): cell.verdict for cell in scheme.secrecy()}

    def test_it_opens_sums_and_sends_no_parcels_of_its_own(self) -> None:
        scheme = created()
        assert scheme.opens_sums
        assert scheme.parcels(0) == scheme.inner.parcels(0) == ()
        assert scheme.chosen_by_delays == (scheme.inner.chosen_by_delays,)
        deadline = created("deadline", {"schemes.deadline.seconds": 2.5})
        assert deadline.chosen_by_delays == (2.5,)
        sealed = created("sealed")
        assert sealed.parcels(0) == sealed.inner.parcels(0) != ()

    def test_hand_overs_add_their_condition(self) -> None:
        assert created("sealed").allowed_if == f"{created().allowed_if} and colludes with no device"
        assert created().allowed_if.endswith("fewer than 4 devices collude with it")

    def test_a_deviating_server_has_sums_with_and_without_who_may_be_lost(self) -> None:
        single = ("gram", "gradient", "own")
        some, none = created(), created(changes={"schemes.secagg.threshold": N})
        reasons = {cell.reason for cell in some.secrecy() if "calls a device lost" in cell.reason}
        assert len(reasons) == 1
        lost = [cell for cell in some.secrecy() if cell.reason in reasons]
        assert {cell.adversary for cell in lost} == {"deviating server"}
        assert len(lost) == len(single)
        assert not any("calls a device lost" in cell.reason for cell in none.secrecy())
        assert self.verdicts(some)["deviating server", "gradient"] == "leaks"
        assert self.verdicts(none)["deviating server", "gradient"] == "proven"

    def test_sums_over_changing_devices_tell_their_differences(self) -> None:
        cells = [cell for cell in created("minibatch").secrecy() if "can be subtracted" in cell.reason]
        assert {cell.adversary for cell in cells} == {"server", "server and devices", "deviating server"}
        assert len(cells) == 3 * 3
        assert {cell.verdict for cell in cells} == {"leaks"}

    def test_of_parcels_it_says_what_the_inner_scheme_says(self) -> None:
        scheme = created("sealed")
        own = {(cell.adversary, cell.asset): cell for cell in scheme.secrecy()}
        inner = {(cell.adversary, cell.asset): cell for cell in scheme.inner.secrecy()}
        masked = {(cell.adversary, cell.asset): cell for cell in created().secrecy()}
        assert own.keys() == {(who, what) for who in ADVERSARIES for what in ASSETS}
        for key, cell in own.items():
            kept = key[0] in ("server", "devices", "model reader")
            if key[0] != "deviating server":
                assert cell == (masked if kept else inner)[key]
        assert own["deviating server", "gradient"].verdict == "proven"
        assert scheme.leakage().server == created().leakage().server
        assert scheme.leakage().devices == scheme.inner.leakage().devices
        assert scheme.leakage().eavesdropper == scheme.inner.leakage().eavesdropper
