"""Tables whose owners cannot be compared."""

from typing import Any

from cli.wrong import FOLDER, Wrong
from cli.wrong.data import OWN

OWNED = OWN + '[partition]\nkind = "column"\ncolumn = "shop"\n'
ROWS = "size,shop,price\n" + "".join(f"{row}.5,shop {row % 3},{row * row % 7}.25\n" for row in range(30))
COMMAND = ("owners", "mine.toml")


def owners(rows: Any, *says: str, more: Any = (), code: int = 1, scenario: str = OWNED, **files: Any) -> Wrong:
    return Wrong((*COMMAND, *more), code, says, {"data.csv": rows, "mine.toml": scenario, **files})


def setting(value: str, *says: str, code: int = 2) -> Wrong:
    return owners(ROWS, *says, more=("--set", value), code=code)


OWNERS = {
    "owners of no scenario": Wrong(("owners",), 2, ("no scenario is named",)),
    "owners of a data set": Wrong(("owners", "small.toml"), 2, ("who owns each row", "--owner")),
    "a column of owners of a data set": Wrong(("owners", "small.toml", "--owner", "shop"), 2, ("who owns each row",)),
    "a table without owners": owners(ROWS, "who owns each row", "--owner", code=2, scenario=OWN),
    "owners by file": owners(ROWS, "who owns each row", code=2, scenario=OWN + '[partition]\nkind = "files"\n'),
    "owners in .npz": setting("data.source=rows.npz", "who owns each row", ".parquet"),
    "owners on sites": setting("data.source=sites", "who owns each row"),
    "a column of owners that is none": owners(ROWS, "no column 'town'", "size, shop", more=("--owner", "town")),
    "an empty column of owners": owners(ROWS, "names the owner", more=("--owner", ""), code=2),
    "a known table by another column": Wrong(("owners", "chem97", "--owner", "age"), 1, ("'age'", "school, lea")),
    "owners in no file": Wrong(COMMAND, 1, ("data.csv",), {"mine.toml": OWNED}),
    "an owner left out": owners(ROWS.replace("1.5,shop 1,", "1.5,,"), "'shop' is missing in row 1"),
    "a hole in owners' rows": owners(ROWS.replace("4.5,", ","), "'size'", "row 4"),
    "owners with one class": owners(
        "size,shop,kind\n" + "".join(f"{row},shop {row % 3},ant\n" for row in range(30)), "ant"
    ),
    "owners with a constant target": owners(
        "size,shop,price\n" + "".join(f"{row},shop {row % 3},1.5\n" for row in range(30)), "1.5"
    ),
    "owners of one row": owners(
        "size,shop,price\n" + "".join(f"{row},shop {row},{row % 7}.5\n" for row in range(9)), "holds out no row"
    ),
    "one row held out": owners("size,shop,price\n1,a,1.5\n2,a,2.5\n3,a,4.5\n4,b,1.25\n", "same 'price'"),
    "owners of two targets": owners(
        ROWS.replace("size", "size,cost").replace(".5,shop", ".5,1,shop"),
        "several columns",
        more=("--set", "data.target=price,cost"),
        code=2,
    ),
    "owners without features": owners("shop,price\n" + "a,1.5\nb,2.5\n" * 5, "add feature columns"),
    "nothing held out": setting("data.test_fraction=0", "data.test_fraction"),
    "rows held out twice": setting("data.held_out=0.2", "data.held_out"),
    "a test file beside owners": setting("data.test_source=test.csv", "data.test_source"),
    "a kernel for owners": setting("features.kind=rbf", "features.kind = 'none'"),
    "owners without scaling": setting("features.scale=none", "standardised"),
    "owners without intercept": setting("features.intercept=false", "intercept"),
    "owners with missing values": setting("features.missing=mean", "missing"),
    "a number of owners": setting("fleet.devices=3", "fleet.devices"),
    "a group that is no column": owners(ROWS, "--group 'day'", more=("--group", "day"), code=2),
    "a group that is the owner": owners(ROWS, "--group 'shop'", more=("--group", "shop"), code=2),
    "a group that is the target": owners(ROWS, "--group 'price'", more=("--group", "price"), code=2),
    "a solver that owners' scheme cannot use": owners(
        ROWS, "solver", more=("--set", "scheme=drop-slowest", "--set", "training.solver=conjugate-gradients"), code=2
    ),
    "owners into a file": owners(ROWS, "'out'", "--out", more=("--out", "out"), out="text"),
    "owners below a file": owners(ROWS, "out/run", "--out", more=("--out", "out/run"), out="text"),
    "owners into a folder of others": owners(
        ROWS, "'out' holds other files", more=("--out", "out"), **{"out/notes.txt": "text"}
    ),
    "owners into another run's rows": owners(
        ROWS, "other training rows", more=("--out", "out"), **{"out/train.parquet": b"PAR1"}
    ),
    "owners into a folder in place of rows": owners(
        ROWS, "'out'", more=("--out", "out"), **{"out/train.parquet": FOLDER}
    ),
}
