"""The example of docs/deployment.md for real hosts, command by command, each in the network namespace of its host.

    python -m benchmarks.three_owners

The commands are read from the page: the first line of a block names the hosts. Every host has a folder, an address and
a name of its own, and sees nothing of the others but through the network. Stands in for what is not part of the
example: ``scp`` copies from folder to folder, and fingerprints that the page leaves out are those that were printed.
Without FLARE or the right to make namespaces nothing is done.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, final

import numpy as np

from benchmarks.measure import possible
from codedfl.deploy.flare.names import need_flare
from codedfl.deploy.flare.namespaces import Link, need_namespaces, shaped

PAGE = Path(__file__).parents[1] / "docs" / "deployment.md"
SECTIONS = ("Three owners and a server, step by step", "One site more, one less")
OWNERS = ("anna", "ben", "cara", "dora")
FAST = Link(1e9, 1e9)
SCP = '#!/bin/sh\nexec cp -rp "$2" "{hosts}/$(expr "$3" : ".*@\\([a-z]*\\)\\." | sed s/^fl$/server/)/${{3#*:}}"\n'
CODEDFL = '#!/bin/sh\nexec {python} -m codedfl.cli "$@"\n'


def blocks(page: str) -> list[tuple[str, list[str]]]:
    """Return kind and lines of all blocks of the example."""
    text = "".join(page.split(f"### {title}\n")[1].partition("\n### ")[0] for title in SECTIONS)
    return [(kind, body.splitlines()) for kind, body in re.findall(r"```(sh|toml)\n(.*?)```", text, re.DOTALL)]


@final
class Hosts:
    """Hosts of the example, and what their commands have printed."""

    def __init__(self, folder: Path, prefixes: dict[str, tuple[str, ...]]) -> None:
        self._folder = folder
        self._prefixes = prefixes
        self._prints: dict[str, str] = {}
        self._revoking = ""
        tools = folder / "tools"
        tools.mkdir()
        for name, text in (("scp", SCP), ("codedfl", CODEDFL)):
            (tools / name).write_text(text.format(hosts=folder, python=sys.executable))
            (tools / name).chmod(0o700)
        self._environment = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
        for host in prefixes:
            (folder / host).mkdir()

    def run(self, host: str, command: str) -> str:
        """Run a command at a host, in its folder and network; it must succeed. Return what it prints."""
        words = re.sub(r"([a-z]+)=sha256:\.\.\.", lambda found: self._prints[found[1]], command)
        if "sha256:..." in words:
            words = self._revoking
        line = [*self._prefixes[host], "sh", "-c", words]
        began = time.monotonic()
        done = subprocess.run(line, cwd=self._folder / host, env=self._environment, capture_output=True, text=True)
        print(f"  {host + ':':<10} {command:<96} {time.monotonic() - began:5.1f} s", flush=True)
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
        if command.startswith("codedfl deploy key"):
            self._prints[host] = done.stdout.strip()
        if found := re.search(r"`(codedfl deploy revoke) KIT (.*?)`", done.stdout):
            self._revoking = f"{found[1]} kit {found[2]}"
        return done.stdout


def write_rows(path: Path, seed: int) -> None:
    """Write 60 rows of three columns, whose sum tells who is ill."""
    x = np.random.default_rng(seed).standard_normal((60, 3)).round(3)
    rows = [f"{a},{b},{c},{'yes' if a + b + c > 0 else 'no'}" for a, b, c in x.tolist()]
    path.write_text("\n".join(["age,dose,weight,ill", *rows]) + "\n")


def example(folder: Path) -> list[dict[str, Any]]:
    """Go through the example; return the summaries of its runs."""
    with shaped(("organiser", *OWNERS), [FAST] * 5) as network:
        names = {host: (*network.prefix(host),) for host in ("server", "organiser", *OWNERS)}
        etc = [Path("/etc/netns") / namespace for namespace in network.namespaces.values()]
        try:
            for place in etc:  # what `ip netns exec` shows as /etc/hosts
                place.mkdir(parents=True)
                (place / "hosts").write_text(f"127.0.0.1 localhost\n{network.server} fl.example.org\n")
            hosts = Hosts(folder, names)
            for seed, owner in enumerate(OWNERS):
                write_rows(folder / owner / "mine.csv", seed)
            try:
                for kind, lines in blocks(PAGE.read_text(encoding="utf-8")):
                    if kind == "toml":
                        (folder / "organiser" / "mine.toml").write_text("\n".join(lines))
                        continue
                    for host in lines[0].removeprefix("# ").split(", "):
                        for command in lines[1:]:
                            hosts.run(host, command)
            finally:
                for host in ("server", *OWNERS):
                    if (folder / host / "kit").exists():
                        hosts.run(host, "codedfl deploy stop kit")
        finally:
            for place in etc:
                shutil.rmtree(place, ignore_errors=True)
    runs = sorted((folder / "server" / "kit" / "runs").glob("*/summary.json"), key=lambda path: path.stat().st_mtime)
    return [json.loads(path.read_text(encoding="utf-8")) for path in runs]


def main() -> dict[str, Any]:
    """Go through the example, and show what was trained."""
    if not possible(need_flare, need_namespaces):
        return {}
    with tempfile.TemporaryDirectory(prefix="codedfl-example-") as folder:
        found = example(Path(folder))
    for one in found:
        facts = one["deployment"]
        lost = ", ".join(facts["lost"]) or "nobody"
        print(f"  {', '.join(facts['sites'])}: {one['epochs']} epochs of {one['scheme']}, {lost} lost")
    return {"runs": [one["deployment"] for one in found]}


if __name__ == "__main__":
    main()
