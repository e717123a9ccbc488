"""``codedfl site``: what an owner agrees to, what a site has released, and whether a record is genuine."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from codedfl.cli import common
from codedfl.deploy.protocol.records import RECORD, check_record, read_records
from codedfl.deploy.protocol.terms import Terms, terms_of
from codedfl.deploy.site.agreement import agree, agreed_cohort
from codedfl.deploy.site.privacy import PrivacyLedger, PrivacyTotal, SitePrivacy
from codedfl.deploy.site.record import FOLDER
from codedfl.errors import RecordError, UsageError
from codedfl.settings import read_section

site_app = typer.Typer(
    help="For the owner of a site: agree to the terms of a run, see what was released with noise, and check records.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Kit = Annotated[Path, typer.Argument(metavar="KIT", help="The start-up kit of the site, with its site.toml.")]


@site_app.command("terms")
def terms_command(
    scenario: common.ScenarioArgument = None,
    named: common.ScenarioOption = None,
    changes: common.Set = None,
    devices: common.Devices = None,
    plugins: common.Plugin = None,
    json: common.Json = False,
) -> None:
    """Print the terms of a scenario: what it asks of a site, as a text, in words, and as a digest."""
    terms = terms_of(common.chosen_scenario(common.chosen_name(scenario, named), changes, devices))
    if json:
        common.print_json({"digest": terms.digest, "words": list(terms.words), "text": terms.text})
        return
    common.console.print(terms.text, soft_wrap=True)
    _show(terms)


@site_app.command("agree")
def agree_command(
    kit: Kit,
    scenario: common.ScenarioArgument = None,
    named: common.ScenarioOption = None,
    cohort: Annotated[
        str | None,
        typer.Option("--cohort", metavar="A,B,C", help="All devices in their order.  [default: those of site.toml]"),
    ] = None,
    least: Annotated[
        int | None, typer.Option("--least", metavar="N", help="Fewest devices in a sum.  [default: that of site.toml]")
    ] = None,
    changes: common.Set = None,
    devices: common.Devices = None,
    plugins: common.Plugin = None,
    json: common.Json = False,
) -> None:
    """Agree to the terms of a scenario, and to no others: show them, then write them to the kit.

    They apply from the next job on.
    """
    names = agreed_cohort(kit) if cohort is None else tuple(name.strip() for name in cohort.split(","))
    chosen = common.chosen_scenario(common.chosen_name(scenario, named), changes, devices)
    if devices is None and names and not chosen.partition.by_owner:
        chosen = chosen.with_devices(len(names))
    terms = terms_of(chosen)
    if not json:
        _show(terms)
    made = agree(kit, chosen, names, least)
    if json:
        common.print_json({"words": list(terms.words), **made.to_table()})
        return
    who = f"{', '.join(made.cohort)} (at least {made.least} in a sum)"
    common.console.print(f"agreed, with {who}; written to {kit / 'site.toml'}", soft_wrap=True)


@site_app.command("privacy")
def privacy_command(kit: Kit, json: common.Json = False) -> None:
    """Show what the site has released under differential privacy, and what its owner's budget leaves."""
    from codedfl.deploy.flare.sites import read_site

    site = read_site(kit)
    allowed = read_section(site.get("privacy", {}), SitePrivacy, "privacy")
    ledger = PrivacyLedger(str(site.get("name")), kit, allowed)
    entries, clear = ledger.entries(), _runs_without_noise(kit)
    names = dict.fromkeys([allowed.ledger, *(entry.ledger for entry in entries)])
    totals = [PrivacyTotal.of(entries, dataclasses.replace(allowed, ledger=name)) for name in names]
    if json:
        rows = [dataclasses.asdict(entry) for entry in entries]
        common.print_json({"totals": [each.to_table() for each in totals], "releases": rows, "without_noise": clear})
        return
    lines = [each.words for each in totals]
    lines += [f"  {entry.at} run {entry.run} ({entry.ledger}): {entry.statement}" for entry in entries]
    if clear:
        lines.append(f"{len(clear)} runs without noise, which no bound covers: {', '.join(clear)}")
    for line in lines:
        common.console.print(line, soft_wrap=True)


def _runs_without_noise(kit: Path) -> list[str]:
    """Return the runs in which the site has sent what no noise hides, as its records say."""
    found = []
    for path in sorted((kit / FOLDER).glob(f"*/{RECORD}")):
        try:
            (record,) = read_records(path)
            sent = record["computed"]["replies"] + record["computed"]["parcels_made"]
            noise = all(session.get("noise") is True for session in record["sessions"])
        except (RecordError, KeyError, TypeError, AttributeError):
            continue
        if sent and not noise:
            found.append(str(record["run"]))
    return found


@site_app.command("verify")
def verify_command(
    record: Annotated[Path, typer.Argument(metavar="RECORD", help="A site-record.json or site-records.json.")],
    key: Annotated[
        str | None, typer.Option("--key", metavar="FINGERPRINT", help="The key that must have signed it (sha256:...).")
    ] = None,
    json: common.Json = False,
) -> None:
    """Check that records of sites are signed and unaltered, and print what they say."""
    if key is not None and not re.fullmatch("sha256:[0-9a-f]{64}", key):
        raise UsageError(f"--key {key} must be a fingerprint: sha256: and 64 hex digits")
    found = read_records(record)
    for number, each in enumerate(found, start=1):
        try:
            check_record(each, key)
        except RecordError as error:
            which = f" (record {number} of {len(found)})" if len(found) > 1 else ""
            raise RecordError(f"'{record}'{which} does not verify: {error}") from None
    if not found:
        raise RecordError(f"'{record}' holds no records; give a site-record.json or site-records.json")
    if json:
        common.print_json([{name: each[name] for name in ("site", "run", "key", "ended")} for each in found])
        return
    for each in found:
        for line in _lines(each):
            common.console.print(line, soft_wrap=True)


def _lines(record: Mapping[str, Any]) -> list[str]:
    """Return a genuine record in short."""
    done, ended = record["computed"], record["ended"]
    sent = [f"{row['messages']} x {row['kind']} to {row['to']}, {row['bytes']} bytes" for row in record["left"]]
    return [
        f"{record['site']}: run {record['run']}, signed by {record['key']}",
        f"  agreed: {record['agreed']['terms']}",
        f"  computed: {done['replies']} replies, {done['parcels_made']} parcels, up to epoch {done['last_epoch']}",
        *(f"  left: {line}" for line in sent),
        *([f"  noise: {made['statement'] or 'nothing was released'}"] if (made := record.get("privacy")) else []),
        f"  refused: {record['refused']} requests",
        f"  ended: {ended['how']}{'' if ended['at'] is None else ' at ' + ended['at']}",
    ]


def _show(terms: Terms) -> None:
    for sentence in terms.words:
        common.console.print(f"- {sentence}", soft_wrap=True)
    common.console.print(terms.digest, soft_wrap=True)
