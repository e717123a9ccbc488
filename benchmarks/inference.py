"""Collusion, the server's view and membership at full size: MNIST, 2000 features, 25 devices, the paper's cipher."""

import resource
import time
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.measure import show
from benchmarks.pictures import membership_picture, save
from benchmarks.reconstruction import Rebuilt, figure, ranking, reconstruct
from codedfl import data
from codedfl.cipher.mceliece.parameters import PAPER_92
from codedfl.cipher.mceliece.private_key import KeyPair, generate_keys
from codedfl.cipher.mceliece.public_key import encrypt
from codedfl.scenario import Scenario, Training, load
from codedfl.security.attacks.forwarding import Forwarding
from codedfl.security.attacks.left_kernel import LeftKernel
from codedfl.security.attacks.membership import Decomposition, Leverage
from codedfl.security.attacks.server_view import completed, reached_span
from codedfl.security.attacks.shared_support import SharedSupport
from codedfl.security.contract import Attack
from codedfl.security.scoring import Truth, relative_error, score
from codedfl.security.views.kinds import ForwardView, MembershipView, ParcelView, RepliesView, SharedSupportView, View
from codedfl.task import Problem, gram, learning_rate

EPOCHS = (50, 200, 500)
DEVICE = 0
KEY_SEED = b"inference at the paper's size..."


def main() -> dict[str, Any]:
    """Run every attack on one device and hold it against the truth."""
    scenario = load("paper")
    problem = Problem.build(scenario)
    keys = generate_keys(PAPER_92, dtype=problem.dtype.name, decoder="least-squares", seed=KEY_SEED)
    rng = np.random.default_rng(0)
    results: dict[str, Any] = {
        "forwarding": _forwarding(problem, keys, rng),
        "shared_support": _shared_support(problem, keys, rng),
        "server_view": _server_view(problem, scenario.training, rng),
        "membership": _membership(problem, keys, rng),
    }
    results["peak_gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    show("peak memory", results["peak_gigabytes"], unit="GB")
    return results


def _timed(attack: Attack[Any], view: View, truth: Truth, rng: np.random.Generator) -> dict[str, Any]:
    began = time.perf_counter()
    finding = attack.run(view, rng)
    seconds = time.perf_counter() - began
    return {**vars(score(finding, truth)), "seconds": seconds}


def _forwarding(problem: Problem, keys: KeyPair, rng: np.random.Generator) -> dict[str, Any]:
    """Two devices send under two supports; the third adds its own encoded data and hands the sum on."""
    sent = tuple(
        encrypt(keys.public, problem.shards[1 + number].gram, keys.private.support(number), seed=bytes([number] * 32))
        for number in range(2)
    )
    forwarded = sum(sent, start=keys.public.encode(problem.shards[DEVICE].gram)).words
    view = ForwardView(keys.public.G, tuple(parcel.words for parcel in sent), forwarded)
    result = _timed(Forwarding(), view, _truth(problem), rng)
    show("forwarding: relative error", result["relative_error"], 1e-5)
    show("forwarding: seconds, key prepared on the way", result["seconds"], unit="s")
    return result


def _shared_support(problem: Problem, keys: KeyPair, rng: np.random.Generator) -> dict[str, Any]:
    support = keys.private.support(0)
    words = encrypt(keys.public, problem.shards[DEVICE].gram, support, seed=bytes(32)).words
    view = SharedSupportView(keys.public.G, words, support.positions)
    result = _timed(SharedSupport(), view, _truth(problem), rng)
    show("shared support: relative error", result["relative_error"], 1e-5)
    show("shared support: seconds", result["seconds"], unit="s")
    return result


def _server_view(problem: Problem, training: Training, rng: np.random.Generator) -> dict[str, Any]:
    """Errors by the number of epochs, beside the guess that public images of the same kind allow without any reply."""
    shard = problem.shards[DEVICE]
    guess = gram(problem.x_test.astype(np.float64)) * (shard.samples / len(problem.x_test))
    models, replies = _descend(problem, training)
    results: dict[str, Any] = {"guess_error": relative_error(guess, shard.gram)}
    show("server: relative error of the guess from test images, no reply seen", results["guess_error"])
    for epochs in EPOCHS:
        began = time.perf_counter()
        basis, images = reached_span(RepliesView(models[:epochs], replies[:epochs]))
        found = {"alone": completed(basis, images), "with_guess": completed(basis, images, guess)}
        seconds = time.perf_counter() - began
        errors = {name: relative_error(matrix, shard.gram) for name, matrix in found.items()}
        show(f"server: dimension reached of {len(guess)} after {epochs} epochs", basis.shape[1])
        show(f"server: relative error after {epochs} epochs, replies alone", errors["alone"])
        show(f"server: relative error after {epochs} epochs, with the guess", errors["with_guess"])
        results[str(epochs)] = {"dimension": basis.shape[1], "seconds": seconds, **errors}
    # not the test images: those are in the guess
    outsiders = np.concatenate([other.x for other in problem.shards[DEVICE + 1 : DEVICE + 5]])
    for name, matrix in {"guess": guess, **found}.items():
        attack = Leverage(relative_error(matrix, shard.gram))
        area = _area(attack, matrix, shard.x, outsiders, rng)["auc"]
        show(f"server: membership after {EPOCHS[-1]} epochs, from the matrix of {name}", area)
        results[f"membership_{name}"] = area
    return results


def _descend(problem: Problem, training: Training) -> tuple[Any, Any]:
    """Full gradient descent as the conventional scheme does it; return the models and what one device's replies say."""
    shard = problem.shards[DEVICE]
    system = problem.total_gram / problem.samples + problem.ridge * np.eye(problem.shape[0])
    moments = problem.total_moments / problem.samples
    model = np.zeros(problem.shape)
    models, replies = [], []
    for epoch in range(1, EPOCHS[-1] + 1):
        sent = model.astype(problem.dtype)
        models.append(sent)
        # the device replies the gradient; the server knows its moments from the first reply and adds them
        replies.append((shard.gram @ sent - shard.moments) + shard.moments)
        model = model - learning_rate(training, epoch) * (system @ model - moments)
    return np.stack(models), np.stack(replies)


def _membership(problem: Problem, keys: KeyPair, rng: np.random.Generator) -> dict[str, Any]:
    """Areas under the curve, from the true matrix and from the one that the broken cipher gives away."""
    shard = problem.shards[DEVICE]
    recovered = _recovered(shard.gram, keys, rng)
    results: dict[str, Any] = {"recovered_error": relative_error(recovered, shard.gram)}
    show("membership: relative error of the recovered matrix", results["recovered_error"], 1e-5)
    others = np.concatenate([other.x for number, other in enumerate(problem.shards) if number != DEVICE][:4])
    for outside, points in {"test images": problem.x_test, "images of others": others}.items():
        for attack in (Leverage(), Decomposition()):
            pair = {
                name: _area(attack, matrix, shard.x, points, rng)
                for name, matrix in {"true": shard.gram, "recovered": recovered}.items()
            }
            for name, result in pair.items():
                show(f"membership against {outside}, {attack.name}, {name} matrix: area", result["auc"])
            show("   seconds", pair["recovered"]["seconds"], unit="s")
            results[f"{outside}, {attack.name}"] = pair
    return results


def _area(attack: Attack[Any], matrix: Any, inside: Any, outside: Any, rng: np.random.Generator) -> dict[str, Any]:
    candidates = np.concatenate([inside, outside])
    members = np.arange(len(candidates)) < len(inside)
    return _timed(attack, MembershipView(matrix, candidates), Truth(members=members), rng)


def _truth(problem: Problem) -> Truth:
    return Truth(gram=problem.shards[DEVICE].gram)


def draw(path: Path, starts: int = 8, devices: int = 100) -> Rebuilt:
    """Draw docs/membership.png: a fleet of 100 for the images that are rebuilt, the paper's 25 for the ranking."""
    scenario = load("paper")
    images, split = data.load("mnist"), scenario.partition
    features = data.FeatureMap.create("rbf", inputs=images.inputs, **_map_settings(scenario))
    keys = generate_keys(PAPER_92, dtype="float32", decoder="least-squares", seed=KEY_SEED)
    rng = np.random.default_rng(0)
    few, many = (
        [images.x_train[rows] for rows in data.partition(images.y_train, images.samples, count, seed=split.seed)[:2]]
        for count in (devices, scenario.fleet.size)
    )
    recovered = [_recovered(gram(features.transform(held[0])), keys, rng) for held in (few, many)]
    began = images.x_test[:starts]
    rebuilt = figure(began, reconstruct(recovered[0], features, began), few[0], few[1])
    candidates = np.concatenate([many[0], images.x_test])
    inside = np.arange(len(candidates)) < len(many[0])
    found = Decomposition().run(MembershipView(recovered[1], features.transform(candidates)), rng)
    ranked = ranking(candidates, cast(Any, found.membership), inside, starts)
    save(membership_picture(rebuilt, ranked, len(many[0])), path)
    return rebuilt


def _map_settings(scenario: Scenario) -> dict[str, Any]:
    settings = scenario.features
    return {"dimension": settings.dimension, "gamma": settings.gamma, "seed": settings.seed}


def _recovered(matrix: Any, keys: KeyPair, rng: np.random.Generator) -> Any:
    """Return what one parcel of a device tells an eavesdropper."""
    words = encrypt(keys.public, matrix, keys.private.support(0), seed=bytes(32)).words
    return LeftKernel().run(ParcelView(keys.public.G, words, PAPER_92.t, PAPER_92.beta), rng).gram


if __name__ == "__main__":
    main()
