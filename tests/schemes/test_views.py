"""What adversaries learn, by who sees what: single replies, sums, parcels and models, of two devices and of more."""

import re

import pytest

from codedfl.schemes.secrecy import (
    ADVERSARIES,
    ASSETS,
    Learned,
    alike,
    all_cells,
    clear_views,
    from_models,
    nothing,
    replies,
    sealed_views,
    sharing_views,
    summed_views,
    sums,
    whole,
)


def verdicts(view: Learned) -> tuple[str, ...]:
    return tuple(cell.verdict for cell in view)


ONE_REPLY = ("leaks", "not protected", "leaks", "leaks")
ONE_SUM = ("proven", "proven", "leaks", "leaks")
ONE_MATRIX = ("falls", "falls", "falls", "falls")


def test_what_is_learned_of_the_four_assets() -> None:
    assert verdicts(nothing("because")) == ("proven",) * 4
    assert verdicts(alike("leaks", "because")) == ("leaks",) * 4
    assert verdicts(sums("because")) == ONE_SUM
    assert verdicts(replies("because")) == ONE_REPLY
    assert verdicts(whole("because")) == ONE_MATRIX


def test_every_cell_is_filled_and_nobody_is_examined_unasked() -> None:
    found = all_cells({"server": whole("because")})
    assert [(cell.adversary, cell.asset) for cell in found] == [(who, what) for who in ADVERSARIES for what in ASSETS]
    assert {(cell.adversary, cell.verdict) for cell in found} == {
        (who, "falls" if who == "server" else "not examined") for who in ADVERSARIES
    }
    assert found[12].to_table() == {"adversary": "server", "asset": "gram", "verdict": "falls", "reason": "because"}


def test_of_two_devices_one_reads_the_other_in_the_models() -> None:
    two, three = from_models(2), from_models(3)
    assert verdicts(two["device"]) == verdicts(three["devices"]) == ("leaks", "leaks", "leaks", "leaks")
    assert verdicts(three["device"]) == verdicts(three["deviating device"]) == ONE_SUM
    assert two["device"] == two["devices"] == two["deviating device"] == three["devices"]
    assert verdicts(three["model reader"]) == ("not examined", "not examined", "leaks", "leaks")


def test_parcels_may_tell_devices_more() -> None:
    told = whole("because")
    found = from_models(3, told)
    assert found["device"] == found["devices"] == found["deviating device"] == told
    assert found["model reader"] == from_models(3)["model reader"]


def test_a_server_that_reads_replies() -> None:
    clear, shared = clear_views(3, "because"), sharing_views(3, "sealed")
    for views in (clear, shared):
        assert verdicts(views["server"]) == verdicts(views["deviating server"]) == ONE_REPLY
        assert verdicts(views["eavesdropper"]) == ("proven",) * 4
        assert set(views) == set(ADVERSARIES)
    assert clear["server and devices"] == clear["server"]
    assert verdicts(shared["server and devices"]) == ONE_MATRIX
    assert set(ADVERSARIES) - set(sealed_views(3, "sealed")) == {"server", "server and devices", "deviating server"}


@pytest.mark.parametrize(
    ("devices", "neighbours", "verdict", "reason"),
    [
        (5, 0, "falls", "c devices tell c bands"),
        (2, 0, "falls", "c devices tell c bands"),
        (2, 1, "falls", "of two devices, one knows all masks"),
        (3, 2, "proven", "with N - 1 it subtracts"),
        (5, 4, "proven", "with N - 1 it subtracts"),
        (5, 3, "proven", "with up to 2 devices .* with the 3 devices that share masks with one"),
        (5, 1, "proven", "with up to 0 devices .* with the 1 devices"),
    ],
)
def test_a_server_of_sums_with_some_devices(devices: int, neighbours: int, verdict: str, reason: str) -> None:
    """Masks shared with ``neighbours`` hide a device until all of them pool what they know with the server."""
    views = summed_views(devices, neighbours)
    assert set(views) == set(ADVERSARIES)
    assert verdicts(views["server"]) == verdicts(views["deviating server"]) == ONE_SUM
    pooled = views["server and devices"]
    assert pooled.gram.verdict == verdict
    assert re.search(reason, pooled.gram.reason)
