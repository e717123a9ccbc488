"""Wrong words, settings and scenarios."""

from cli.wrong import FOLDER, Wrong
from rundirs import SMALL


def usage(*command: str, says: tuple[str, ...] = ()) -> Wrong:
    return Wrong(command, 2, says)


def setting(pair: str, *says: str, code: int = 2) -> Wrong:
    return Wrong(("run", "small.toml", "--set", pair, "--out", "out"), code, says)


def coded(pair: str, *says: str, more: tuple[str, ...] = ()) -> Wrong:
    """Options of sealed-coded that do not fit the five devices."""
    pairs = [word for option in (pair, *more) for word in ("--set", f"schemes.sealed-coded.{option}")]
    return Wrong(("run", "small.toml", "--set", "scheme=sealed-coded", *pairs, "--out", "out"), 2, says)


def scenario(text: str | bytes, *says: str) -> Wrong:
    return Wrong(("run", "wrong.toml", "--out", "out"), 2, says, {"wrong.toml": text})


USAGE = {
    "no such command": usage("nosuch", says=("nosuch",)),
    "no scenario": usage("run", says=("scenario",)),
    "unknown option": usage("run", "small.toml", "--bogus", says=("--bogus",)),
    "unknown global option": usage("--bogus", says=("--bogus",)),
    "one argument too many": usage("run", "small.toml", "small.toml"),
    "option without value": usage("run", "small.toml", "--out", says=("--out",)),
    "sweep over nothing": usage("sweep", says=("--over",)),
    "axis without values": usage("sweep", "--over", "links.loss", says=("links.loss", "KEY=A,B,C")),
    "axis with empty values": usage("sweep", "--over", "links.loss=", says=("links.loss",)),
    "axis with blank values": usage("sweep", "-s", "small.toml", "--over", "links.loss= ", says=("links.loss",)),
    "axis without key": usage("sweep", "--over", "=1,2", says=("=1,2",)),
    "axis twice": usage(
        *("sweep", "-s", "small.toml", "--over", "links.loss=0,0.1", "--over", "links.loss=0.2,0.3"),
        says=("links.loss",),
    ),
    "axis out of range": usage(
        "sweep", "-s", "small.toml", "--over", "links.loss=0.1,2", says=("links.loss", "2", "below 1")
    ),
    "axis unknown": usage("sweep", "-s", "small.toml", "--over", "links.lost=0.1", says=("links.lost", "loss")),
    "no workers": usage("sweep", "--over", "links.loss=0.1", "--workers", "0", says=("--workers",)),
    "workers in words": usage("sweep", "--over", "links.loss=0.1", "--workers", "two", says=("--workers",)),
    "no seeds": usage("reproduce", "--quick", "--seeds", "0", says=("--seeds",)),
    "unknown preset to attack": usage("attack", "nosuch", says=("nosuch", "paper-92")),
    "unknown attack": usage("attack", "paper-92", "--attack", "nosuch", says=("nosuch", "left-kernel")),
    "too few epochs to attack": usage("attack", "paper-92", "--epochs", "1", says=("--epochs",)),
    "unknown preset to judge": usage("security", "nosuch", says=("nosuch", "paper-92")),
    "a level without features": usage(
        "security", "paper-92", "--set", "features.kind=none", says=("paper-92", "features.kind")
    ),
    "no trials": usage("fer", "--trials", "0", says=("--trials",)),
    "unknown decoder": usage("fer", "--decoder", "turbo", says=("turbo", "inactivation")),
    "precision of inactivation": usage(
        "fer", "--decoder", "inactivation", "--precision", "0.1", says=("--precision", "peeling")
    ),
    "unknown construction": usage("fer", "--construction", "nosuch", says=("nosuch", "peg")),
    "more erasures than positions": Wrong(
        ("fer", "--n", "60", "--k", "30", "--degree", "3", "--erasures", "61"), 1, ("61", "60")
    ),
    "a code longer on data than on all": Wrong(("fer", "--n", "30", "--k", "60", "--degree", "3"), 1, ("30",)),
    "unknown scheme": usage("compare", "nosuch", "-s", "small.toml", says=("nosuch", "conventional")),
    "unknown scenario to compare": usage("compare", "-s", "nosuch", says=("nosuch", "paper-quick")),
    "unknown scheme among all": usage(
        "compare", "nosuch", "--all", "-s", "small.toml", says=("nosuch", "conventional")
    ),
    "all of data dealt otherwise": usage(
        *("compare", "--all", "-s", "small.toml", "--set", "partition.kind=shards"), says=("partition.kind", "shards")
    ),
    "all on an unknown scenario": usage("compare", "--all", "-s", "nosuch", says=("nosuch", "heavy-tailed")),
    "no attacks without all": usage("compare", "-s", "small.toml", "--no-attacks", says=("--no-attacks", "--all")),
    "repeats without all": usage("compare", "-s", "small.toml", "--repeats", "2", says=("--repeats", "--all")),
    "no repeats": usage("compare", "--all", "-s", "small.toml", "--repeats", "0", says=("--repeats",)),
    "all into a file": Wrong(
        ("compare", "--all", "-s", "small.toml", "--out", "small.toml"), 1, ("small.toml", "--out")
    ),
    "unknown scheme to plan": usage("plan", "nosuch", "-s", "small.toml", says=("nosuch", "conventional")),
    "unknown scenario to plan": usage("plan", "-s", "nosuch", says=("nosuch", "paper-quick")),
    "unknown privacy": usage("plan", "-s", "small.toml", "--privacy", "total", says=("total", "encrypted, sums, any")),
    "epochs of no solver": usage("plan", "-s", "small.toml", "--epochs", "30", says=("'30'", "SOLVER=N")),
    "epochs in words": usage(
        "plan", "-s", "small.toml", "--epochs", "gradient-descent=many", says=("gradient-descent=many", "SOLVER=N")
    ),
    "no epochs": usage(
        "plan", "-s", "small.toml", "--epochs", "gradient-descent=0", says=("gradient-descent=0", "between 1")
    ),
    "epochs beyond all memory": usage(
        "plan", "-s", "small.toml", "--epochs", f"gradient-descent={10**13}", says=("gradient-descent", "1000000")
    ),
    "epochs of an unknown solver": usage(
        "plan", "-s", "small.toml", "--epochs", "newton=5", says=("newton=5", "conjugate-gradients")
    ),
    "samples without outputs": usage("plan", "-s", "small.toml", "--samples", "50", says=("--samples", "--outputs")),
    "outputs without samples": usage("plan", "-s", "small.toml", "--outputs", "5", says=("--samples", "--outputs")),
    "no samples": usage("plan", "-s", "small.toml", "--samples", "0", "--outputs", "5", says=("--samples",)),
    "samples without features": usage(
        *("plan", "-s", "small.toml", "--set", "features.kind=none", "--samples", "50", "--outputs", "5"),
        says=("features.dimension",),
    ),
    "fewer samples than devices": Wrong(
        ("plan", "-s", "small.toml", "--samples", "3", "--outputs", "2"), 1, ("3 samples", "5 devices")
    ),
    "one draw for a band": usage("plan", "-s", "small.toml", "--draws", "1", says=("--draws",)),
    "epochs from no run": Wrong(("plan", "-s", "small.toml", "--from-run", "nowhere"), 1, ("nowhere", "finished")),
    "unknown data set to fetch": usage("data", "fetch", "mnits", says=("mnits", "did you mean 'mnist'?")),
    "a scenario twice": usage("run", "small.toml", "-s", "paper", says=("small.toml", "paper", "name it once")),
    "a scenario twice to sweep": usage(
        "sweep", "small.toml", "-s", "paper", "--over", "links.loss=0", says=("paper", "name it once")
    ),
    "a scenario twice to compare": usage(
        "compare", "paper-quick", "-s", "small.toml", says=("no scheme is called 'paper-quick'",)
    ),
    "neither scheme nor scenario": usage("compare", "paper-quik", says=("paper-quik", "did you mean 'paper-quick'?")),
    "a scheme misspelt": usage("compare", "small.toml", "sealde", says=("sealde", "did you mean 'sealed'?")),
    "a scheme misspelt to plan": usage("plan", "small.toml", "code-basd", says=("did you mean 'code-based'?",)),
    "a preset misspelt": usage("run", "papr", says=("papr", "did you mean 'paper'?")),
    "cases and a scenario": usage("attack", "paper-92", "--all", says=("--all", "stored figures")),
    "full size of what": usage("attack", "paper-quick", "--full-size", says=("--full-size", "--all")),
    "figures of one attack": usage(
        "attack", "paper-quick", "--attack", "null", "--record", "out.json", says=("--record", "--attack")
    ),
    "figures into no folder": usage(
        "attack", "paper-quick", "--record", "none/out.json", says=("'none' is no folder",)
    ),
    "an attack misspelt": usage("attack", "--attack", "left-kernal", says=("did you mean 'left-kernel'?",)),
    "an unknown setting": usage("settings", "training.epoch", says=("training.epoch", "'training.epochs'?")),
    "a setting with too much": usage("settings", "training", "links", says=("links",)),
    **{
        f"no devices to {words[0]}": usage(*words, "--devices", "0", says=("--devices 0", "from 1 to 100000"))
        for words in (
            ("run", "small.toml"),
            ("compare", "small.toml"),
            ("plan", "small.toml"),
            ("sweep", "small.toml", "--over", "links.loss=0"),
            ("security", "paper-92"),
            ("attack", "paper-92"),
        )
    },
    "devices in words": usage("run", "small.toml", "--devices", "many", says=("--devices",)),
    "devices beyond all memory": usage("run", "small.toml", "--devices", str(10**13), says=("--devices", "100000")),
    "no such data command": usage("data", "nosuch", says=("nosuch",)),
    "unknown edge weights": setting("schemes.code-based.weights=uniform", "weights", "signed-uniform, ones, signs"),
    "unknown construction of a code": setting("schemes.code-based.construction=ace", "construction", "peg"),
    "unknown family of supports": setting("schemes.code-based.family=fano", "family", "partition"),
    "no noise": setting("schemes.code-based.noise=0", "noise", "above 0"),
    "error with --json": usage("run", "nosuch", "--json", says=("nosuch",)),
}
SETTINGS = {
    "no equals sign": setting("links.loss", "links.loss", "KEY=VALUE"),
    "no key": setting("=0.2", "=0.2"),
    "unknown table": setting("nosuch.key=1", "nosuch.key"),
    "unknown key": setting("training.epoch=1", "training.epoch", "epochs"),
    "key of a number": setting("training.epochs.more=1", "training.epochs.more"),
    "index out of range": setting("fleet.devices.9.count=1", "fleet.devices.9"),
    "index in words": setting("fleet.devices.first.count=1", "fleet.devices.first"),
    "text for a number": setting("training.epochs=many", "training.epochs", "many", "whole number"),
    "fraction of an epoch": setting("training.epochs=2.5", "training.epochs", "2.5", "whole number"),
    "truth for a number": setting("training.epochs=true", "training.epochs", "True"),
    "number for a text": setting("data.source=5", "data.source", "5", "text"),
    "number for a list": setting("training.targets=0.9", "training.targets", "list"),
    "number for a table": setting("links=5", "links", "table"),
    "text for a truth": setting("training.stop_at_last_target=yes", "stop_at_last_target", "yes"),
    "zero epochs": setting("training.epochs=0", "training.epochs", "at least 1"),
    "certain loss": setting("links.loss=1", "links.loss", "below 1"),
    "certain loss between devices": setting("links.d2d_loss=1", "links.d2d_loss", "below 1"),
    "unknown channel": setting("links.d2d_channel=serial", "links.d2d_channel", "serial", "parallel, shared"),
    "not a number": setting("links.loss=nan", "links.loss", "nan"),
    "infinite": setting("links.up_rate=inf", "links.up_rate", "inf"),
    "negative": setting("task.ridge=-1", "task.ridge", "at least 0"),
    "weights out of order": setting("task.ridge=[0.1,0.01]", "task.ridge", "increase"),
    "weights and a solver of one": setting(
        "task.ridge=[0.01,0.1]", "task.ridge holds 2", "gradient-descent", "conjugate-gradients or closed-form"
    ),
    "weights and a first model": Wrong(
        (
            *("run", "small.toml", "--set", "task.ridge=auto", "--set", "scheme=conventional", "--out", "out"),
            *("--set", "training.solver=conjugate-gradients", "--set", "training.start=model.npz"),
        ),
        2,
        ("task.ridge holds 30", "training.start = 'model.npz'"),
    ),
    "targets out of order": setting("training.targets=[0.9,0.5]", "training.targets", "increase"),
    "unknown choice": setting("features.kind=fourier", "features.kind", "fourier", "rbf"),
    "unknown scheme": setting("scheme=nosuch", "scheme", "nosuch", "conventional"),
    "scheme misspelt": setting("scheme=minibach", "minibach", "did you mean 'minibatch'?"),
    "a fraction of thousands": setting("training.epochs=1.5e-3", "training.epochs", "whole number"),
    "options of an unknown scheme": setting("schemes.nosuch.parts=1", "nosuch"),
    "unknown option of a scheme": setting("schemes.minibatch.part=1", "schemes.minibatch.part", "parts"),
    "number for options": setting("schemes.minibatch=5", "schemes.minibatch"),
    "no devices": setting("fleet.devices=[]", "fleet.devices"),
    "empty source": setting("data.source=''", "data.source"),
    "more parts than data": setting("schemes.minibatch.parts=1000", "schemes.minibatch.parts", "1000"),
    "feature seed beyond 32 bits": setting("features.seed=4294967296", "4294967296"),
    "more devices than data": setting("fleet.devices.0.count=100000", "100002", "devices", code=1),
    "features beyond all memory": setting("features.dimension=10000000000000", "features.dimension"),
    "draws beyond all memory": setting("timing.draws=10000000000000", "timing.draws"),
    "a link so slow that time is infinite": setting("links.up_rate=1e-310", "links.up_rate"),
    "diverging": setting("training.learning_rate=1e6", "diverged", "training.learning_rate", "1e+06", code=1),
    "unknown solver": setting("training.solver=newton", "training.solver", "newton", "conjugate-gradients"),
    "number for a solver": setting("training.solver=2", "training.solver", "2", "nesterov"),
    "tolerance below zero": setting("training.tolerance=-0.1", "training.tolerance", "-0.1", "at least 0"),
    "tolerance of everything": setting("training.tolerance=1", "training.tolerance", "below 1"),
    "conjugate gradients of batches": setting(
        "training.solver=conjugate-gradients", "conjugate-gradients", "minibatch", "all data", "nesterov"
    ),
    "closed form without sums": Wrong(
        ("run", "small.toml", "--set", "scheme=conventional", "--set", "training.solver=closed-form", "--out", "out"),
        2,
        ("closed-form", "sums", "conventional", "conjugate-gradients"),
    ),
    "diverging with speed": Wrong(
        (
            "run",
            "small.toml",
            "--set",
            "training.solver=nesterov",
            "--set",
            "training.learning_rate=1e6",
            "--out",
            "out",
        ),
        1,
        ("diverged", "training.learning_rate", "1e+06"),
    ),
    "waiting for more than there are": Wrong(
        (
            *("run", "small.toml", "--set", "scheme=drop-slowest"),
            *("--set", "schemes.drop-slowest.wait_for=6", "--out", "out"),
        ),
        2,
        ("wait_for", "6", "at most 5"),
    ),
    "a buffer for more than there are": Wrong(
        (
            *("run", "small.toml", "--set", "scheme=asynchronous"),
            *("--set", "schemes.asynchronous.buffer=6", "--out", "out"),
        ),
        2,
        ("schemes.asynchronous.buffer", "6", "at most 5"),
    ),
    "no time at all": setting("schemes.deadline.seconds=0", "schemes.deadline.seconds", "0", "above 0"),
    "all replies in time": setting("schemes.deadline.share=1", "schemes.deadline.share", "1", "below 1"),
    "unknown data set": setting("data.source=cifar", "cifar", "mnist", "digits"),
    "no worker": setting("schemes.sealed-coded.workers=0", "schemes.sealed-coded.workers", "0", "at least 1"),
    "no reply": setting("schemes.sealed-coded.threshold=0", "schemes.sealed-coded.threshold", "at least 1"),
    "no epochs expected": setting("schemes.sealed-coded.expected_epochs=0", "expected_epochs", "at least 1"),
    "masks that are neither on nor off": setting("schemes.sealed-coded.masks=maybe", "sealed-coded.masks", "maybe"),
    "a mask with one neighbour": setting(
        "schemes.sealed-coded.neighbours=1", "sealed-coded.neighbours", "1", "at least 2"
    ),
    "more workers than devices": coded("workers=6", "schemes.sealed-coded.workers", "6", "at most 5"),
    "more replies than workers": coded("workers=3", "threshold", "4", "at most 3", more=("threshold=4",)),
    "more replies than devices": coded("threshold=6", "threshold", "6", "at most 5"),
    "only spares": coded("spares=5", "spares", "5", "below 5"),
    "as many spares as workers": coded("spares=3", "spares", "3", "below 3", more=("workers=3",)),
    "unknown ring": setting("schemes.sealed.ring=Z_2^16", "schemes.sealed.ring", "Z_2^16", "Z_2^32"),
    "the field for sealed sharing": setting("schemes.sealed.ring=GF(2^31-1)", "schemes.sealed.ring", "Z_2^64"),
    "a device that never replies": setting("fleet.devices.0.last_epoch=0", "last_epoch", "0", "at least 1"),
    "a fleet of one, coded": Wrong(
        (
            *("run", "small.toml", "--set", "scheme=sealed-coded"),
            *("--set", "fleet.devices=[{count=1,mac_rate=1e6}]", "--out", "out"),
        ),
        2,
        ("sealed-coded", "at least 2 devices"),
    ),
}
SCENARIOS = {
    "unknown preset": Wrong(("run", "nosuch"), 2, ("nosuch", "paper", "paper-quick", "fashion")),
    "missing file": Wrong(("run", "nosuch.toml"), 2, ("nosuch.toml",)),
    "folder": Wrong(("run", "folder"), 2, ("folder",), {"folder": FOLDER}),
    "folder like a file": Wrong(("run", "folder.toml"), 2, ("folder.toml",), {"folder.toml": FOLDER}),
    "not text": scenario(b"\xff\xfe\x00", "wrong.toml"),
    "not TOML": scenario("this is no table", "wrong.toml"),
    "a key twice": scenario(SMALL + "\n[timing]\nseed = 1\n", "wrong.toml"),
    "empty": scenario("", "fleet"),
    "unknown key": scenario(SMALL.replace("epochs", "epoch"), "training.epoch", "epochs"),
    "unknown table": scenario(SMALL + "\n[colour]\nx = 1\n", "colour"),
    "value for a table": scenario(SMALL.replace('[data]\nsource = "digits"', 'data = "digits"'), "data"),
    "device without speed": scenario(SMALL.replace("mac_rate = 25e6", ""), "fleet.devices", "mac_rate"),
    "number for a name": scenario(SMALL.replace('"small"', "5"), "name"),
    "sizes for other devices": scenario(
        SMALL + '\n[partition]\nkind = "sizes"\nsizes = [1, 2, 3]\n', "partition.sizes", "3", "5"
    ),
    "a weight of zero": scenario(
        SMALL + '\n[partition]\nkind = "sizes"\nsizes = [1, 2, 3, 0, 1]\n', "partition.sizes", "above 0"
    ),
}
