"""What secure aggregation promises: the threshold that it needs, and what parties learn."""

from typing import Any

from codedfl.cipher.masks.graph import COMPLETE, DEGREE, MaskGraph
from codedfl.errors import ScenarioError
from codedfl.schemes.aggregated.server import Threshold
from codedfl.schemes.public import Public
from codedfl.schemes.secrecy import Leakage, Learned, from_models, nothing, sums
from codedfl.settings import setting

SECAGG_REASON = (
    "The server opens sums only: masks that devices agree on (X25519, AES-256) hide every single reply as long as the "
    "server keeps to the protocol and fewer devices than the threshold collude with it."
)


LEAST_NEIGHBOURS = 8
"""Fewer neighbours would tolerate no device that colludes with a deviating server."""


def neighbours_setting() -> Any:
    """Return the option how many devices each device shares masks with."""
    words = (
        f"Devices with which each device shares masks, an even number; unset: all up to {COMPLETE} devices, {DEGREE} "
        "in larger fleets."
    )
    return setting(default=None, low=LEAST_NEIGHBOURS, help=words)


def check_threshold(scheme: str, threshold: int | None, devices: int) -> None:
    """Refuse a single device, and a threshold above all devices or of at most half of them."""
    if devices < 2:
        raise ScenarioError(f"scheme = '{scheme}' needs at least 2 devices: with one, the sum is its own reply")
    low = devices // 2 + 1
    if threshold is not None and not low <= threshold <= devices:
        raise ScenarioError(
            f"schemes.{scheme}.threshold = {threshold} must be between {low}, more than half of the devices, and "
            f"{devices}, all of them"
        )


def check_sums(scheme: str, threshold: int | None, public: Public, graph: MaskGraph) -> None:
    """Refuse a single device, and a threshold that opens sums without noise that is counted on."""
    check_threshold(scheme, None, public.devices)
    release, n = public.release, public.devices
    if release is not None and release.losses and not graph.complete:
        raise ScenarioError(
            f"privacy.losses = {release.losses} does not go with masks between {graph.degree} neighbours, who cannot "
            f"tell how many devices are lost in all; set it to 0, or schemes.{scheme}.neighbours = {n}"
        )
    if release is not None and release.losses and release.honest > 1:
        least = (n + release.colluding) // 2 + 1  # as in aggregated_views
        if private_threshold(public, Threshold(threshold)).of(n) < least:
            raise ScenarioError(
                f"privacy.losses = {release.losses} and privacy.colluding = {release.colluding} let a server that "
                f"deviates open two sums, whose difference has too little noise; set schemes.{scheme}.threshold = "
                f"{least}, or lower one of them"
            )
    if public.release is not None and threshold is not None and threshold < public.devices - public.release.losses:
        raise ScenarioError(
            f"schemes.{scheme}.threshold = {threshold} opens sums without the noise of {public.devices - threshold} of "
            f"{public.devices} devices, but privacy.losses = {public.release.losses}; leave the threshold out"
        )


def private_threshold(public: Public, threshold: Threshold) -> Threshold:
    """Return the threshold where devices add noise: sums open with all whose noise is counted on."""
    if public.release is None:
        return threshold
    return Threshold(max(threshold.of(public.devices), public.devices - public.release.losses))


def survived_losses(graph: MaskGraph, threshold: Threshold) -> int:
    """Return how many devices may be lost, whichever they are: all of them may be of one circle."""
    return graph.size - threshold.within(graph)


def tolerated(graph: MaskGraph, threshold: Threshold) -> tuple[int, int]:
    """Return how many devices may collude with a server that keeps to the protocol, and with one that deviates.

    The derivation is in docs/secagg.md.
    """
    t, n = threshold.within(graph), graph.devices
    if graph.complete:  # a device signs one list of survivors, so two lists need 2 t - c of N devices
        return min(t - 1, n - 2), 2 * t - n - 1
    # survivors stay connected unless two gaps of k/2 places on the ring have nobody else; neighbours on the ring
    # cannot accept two lists
    spare = t - graph.degree // 2 - 1
    return max(0, 2 * spare - 1), max(0, spare - 1)


def secagg_leakage(public: Public, threshold: Threshold, what: str, graph: MaskGraph) -> Leakage:
    """Return what each party sees if the server learns sums only."""
    t = threshold.of(public.devices)
    if not graph.complete:
        most = tolerated(graph, threshold)[0]
        return Leakage(
            server=f"{what}, summed over all devices that replied (at least {t}), and nothing about a single device; "
            f"if at most {most} devices collude with it, the sum over the others; if more do that share masks with "
            "the same devices, sums over fewer",
            devices="only what the models reveal: sums over all devices, and so the gradients of one device if all "
            "others collude",
            eavesdropper="what the server sees, sums over devices, unless the transport is encrypted",
        )
    return Leakage(
        server=f"{what}, summed over all devices that replied (at least {t}), and nothing about a single device; if "
        f"fewer than {t} devices collude with it, the sum over the others",
        devices="only what the models reveal: sums over all devices, and so the gradients of one device if all others "
        "collude",
        eavesdropper="what the server sees, sums over devices, unless the transport is encrypted",
    )


def aggregated_views(public: Public, threshold: Threshold, graph: MaskGraph) -> dict[str, Learned]:
    """Return the views where every reply is under masks."""
    t, n = threshold.of(public.devices), public.devices
    secure = f"masks hide every reply (Bonawitz et al. 2017; X25519, AES-256) as long as fewer than {t} devices collude"
    most, deviating = tolerated(graph, threshold)
    if not graph.complete:
        secure = (
            f"masks with {graph.degree} neighbours each (Bell et al. 2020; X25519, AES-256) hide every reply as long "
            f"as at most {most} devices collude"
        )
    pooled = sums(f"{secure}; with c of them, at most {most}, the server learns the sum over the others", "the others")
    refused = f"{secure}; sites pin the cohort, its keys and the threshold, so "
    refused += f"2 t > N + c is needed: c < {2 * t - n}" if graph.complete else f"at most {deviating} may deviate, too"
    return {
        "eavesdropper": nothing("devices send each other nothing but envelopes under agreed keys"),
        "server": sums(secure),
        "server and devices": pooled,
        "deviating server": sums(refused),
        **from_models(n),
    }


def sums_allowed(public: Public, threshold: Threshold, what: str, graph: MaskGraph) -> str:
    """Return the condition of secure aggregation."""
    t = threshold.of(public.devices)
    found = f"the server may learn sums of {what} over at least {t} devices, and"
    if graph.complete:
        return f"{found} fewer than {t} devices collude with it"
    most, deviating = tolerated(graph, threshold)
    return f"{found} at most {most} devices collude with it, at most {deviating} if it deviates from the protocol"
