"""Mutation testing: change one operator, constant or statement at random and see whether a test notices.

``make mutants`` runs this; it is no part of any test run. The first call records which tests run which block of which
function; a mutant is judged by the tests that run its block, in a fork of a process that has imported everything.

Some changes change nothing that a caller could see. Survivors that were judged so stand in equivalent.toml, each with
its reason, and are not drawn; whoever changes the line makes them mutants again.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
sys.dont_write_bytecode = False  # to rewrite all assertions takes ten seconds

from mutation.campaign import Campaign, run  # noqa: E402 - numpy reads the variables when it is imported
from mutation.changes import ROOT, default_files, drawn_from  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "files", nargs="*", default=[], type=Path, help="source files; the core rooms if none are named"
    )
    parser.add_argument("--count", type=int, default=100, help="mutants, drawn at random; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", type=int, nargs=2, help="only mutants of these lines, first and last")
    parser.add_argument("--tests", nargs="+", default=["tests"], help="folders and files of tests to collect")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--budget", type=float, default=60, help="seconds that the tests of one mutant take unchanged")
    parser.add_argument("--kept", type=Path, default=ROOT / "out" / "reached.json", help="what tests reach")
    parser.add_argument("--json", type=Path, help="add each outcome to this file, a line each")
    parser.add_argument("--unchanged", action="store_true", help="put the code as it is in place: all must survive")
    chosen = parser.parse_args()
    if missing := [str(file) for file in chosen.files if not file.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    files = [file.resolve() for file in chosen.files] or default_files()
    drawn, every = drawn_from(files, chosen.count or None, chosen.seed)
    if chosen.lines:
        drawn = [mutant for mutant in drawn if chosen.lines[0] <= mutant.line <= chosen.lines[1]]
    print(f"{len(drawn)} of {every} mutants of {len(files)} files", flush=True)
    campaign = Campaign(drawn, chosen.kept, chosen.jobs, chosen.budget, chosen.json, chosen.unchanged)
    status = run(campaign, chosen.tests)
    if campaign.wrong:
        print("\n".join(campaign.wrong))
        return 1
    noticed = sum(outcome.noticed_by is not None for outcome in campaign.outcomes)
    killed = sum("::" not in (outcome.noticed_by or "::") for outcome in campaign.outcomes)
    share = f"{noticed / max(1, len(campaign.outcomes)):.1%}"
    print(f"{noticed} of {len(campaign.outcomes)} noticed ({share}), {killed} of them by the end of their process")
    return status


if __name__ == "__main__":
    sys.exit(main())
