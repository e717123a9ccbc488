"""Wrong requests for clusters."""

from cli.wrong import Wrong

SWEEP = ("sweep", "-s", "small.toml", "--over", "links.loss=0.1")
CLUSTERS = {
    "no address": Wrong((*SWEEP, "--scheduler", "nonsense"), 2, ("'nonsense'", "tcp://HOST:PORT")),
    "an address of the web": Wrong(
        ("compare", "--all", "-s", "small.toml", "--scheduler", "http://a:1"), 2, ("'http://a:1'", "tcp://HOST:PORT")
    ),
    "a dead scheduler": Wrong(
        ("reproduce", "--quick", "--scheduler", "tcp://127.0.0.1:1"), 1, ("tcp://127.0.0.1:1", "no Dask scheduler")
    ),
    "two places to work": Wrong(
        (*SWEEP, "--scheduler", "tcp://127.0.0.1:1", "--cluster", "2"), 2, ("--scheduler", "--cluster", "give one")
    ),
    "a cluster and processes": Wrong(
        ("compare", "-s", "small.toml", "--cluster", "2", "--workers", "2"), 2, ("--cluster", "--workers", "give one")
    ),
    "a cluster of none": Wrong(("reproduce", "--cluster", "0"), 2, ("--cluster", "greater than or equal to 1")),
    "a cluster that writes into a file": Wrong(
        (*SWEEP, "--cluster", "1", "--out", "mine"), 1, ("mine",), {"mine": "x"}
    ),
}
