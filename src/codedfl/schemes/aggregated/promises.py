"""What secure aggregation promises: the threshold that it needs, and what parties learn."""

from codedfl.errors import ScenarioError
from codedfl.schemes.aggregated.server import Threshold
from codedfl.schemes.public import Public
from codedfl.schemes.secrecy import Leakage, Learned, from_models, nothing, sums

SECAGG_REASON = (
    "The server opens sums only: masks that devices agree on (X25519, AES-256) hide every single reply as long as the "
    "server keeps to the protocol and fewer devices than the threshold collude with it."
)


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


def check_sums(scheme: str, threshold: int | None, public: Public) -> None:
    """Refuse a single device, and a threshold that opens sums without noise that is counted on."""
    check_threshold(scheme, None, public.devices)
    release, n = public.release, public.devices
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


def secagg_leakage(public: Public, threshold: Threshold, what: str) -> Leakage:
    """Return what each party sees if the server learns sums only."""
    t = threshold.of(public.devices)
    return Leakage(
        server=f"{what}, summed over all devices that replied (at least {t}), and nothing about a single device; if "
        f"fewer than {t} devices collude with it, the sum over the others",
        devices="only what the models reveal: sums over all devices, and so the gradients of one device if all others "
        "collude",
        eavesdropper="what the server sees, sums over devices, unless the transport is encrypted",
    )


def aggregated_views(public: Public, threshold: Threshold) -> dict[str, Learned]:
    """Return the views where every reply is under masks."""
    t, n = threshold.of(public.devices), public.devices
    secure = f"masks hide every reply (Bonawitz et al. 2017; X25519, AES-256) as long as fewer than {t} devices collude"
    most = min(t - 1, n - 2)
    pooled = sums(f"{secure}; with c of them, at most {most}, the server learns the sum over the others", "the others")
    # a device signs one list of survivors, so two lists need 2 t - c of N devices (docs/secagg.md)
    refused = f"{secure}; sites pin the cohort, its keys and the threshold, so 2 t > N + c is needed: c < {2 * t - n}"
    return {
        "eavesdropper": nothing("devices send each other nothing but envelopes under agreed keys"),
        "server": sums(secure),
        "server and devices": pooled,
        "deviating server": sums(refused),
        **from_models(n),
    }


def sums_allowed(public: Public, threshold: Threshold, what: str) -> str:
    """Return the condition of secure aggregation."""
    t = threshold.of(public.devices)
    return f"the server may learn sums of {what} over at least {t} devices, and fewer than {t} devices collude with it"
