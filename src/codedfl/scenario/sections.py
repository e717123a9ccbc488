"""The sections of a scenario: data, partition, features, task, training, fleet, links and timing."""

from pathlib import Path

from codedfl.errors import ScenarioError
from codedfl.settings import Settings, setting

DATA_SETS = ("mnist", "fashion", "digits")
"""The names in ``codedfl.data.SOURCES``, which this room does not import."""

TABLE_SETS = ("chem97", "insteval", "watch")
"""The names in ``codedfl.data.TABLES``: tables with owners, used as files are."""

SOLVER_NAMES = ("gradient-descent", "nesterov", "conjugate-gradients", "closed-form")
"""The names in ``codedfl.solvers.SOLVERS``, which this room does not import."""

PATH_SOLVER_NAMES = ("conjugate-gradients", "closed-form")
"""Those in ``codedfl.solvers.PATH_SOLVERS``, which solve for several ridge weights at once."""

AUTO = "auto"

RIDGE_PATH = tuple(float(f"{10 ** (-6 + 7 * step / 29):.3g}") for step in range(30))
"""What ``task.ridge = "auto"`` chooses from: 30 values from 1e-6 to 10, evenly spaced in their logarithm."""


_LEAST_SHARE = 0.001
"""Of ``data.held_out``; one row of so many is held out."""


class Data(Settings, table="data"):
    """Where samples come from: a named data set, or a file of the user's own features."""

    source: str = setting(
        default="mnist",
        help="A data set (mnist, fashion, digits), a table with owners (chem97, insteval, watch), a .npz, .parquet or "
        ".csv file (several with partition.kind 'files': a pattern such as hospital-*.csv), or 'sites': each site has "
        "its own.",
    )
    kind: str = setting(
        default="auto", choices=("auto", "classification", "regression"), help="What the target is; auto: by its type."
    )
    target: str = setting(default="", help="Column(s) of the target, separated by commas; the last column if empty.")
    test_source: str = setting(default="", help="File with the test rows; empty: a part of the source.")
    test_fraction: float = setting(
        default=0.2, low=0, below=1, help="Test part of a file that has no test rows; 0: all rows train, none scores."
    )
    held_out: float = setting(
        default=0.0,
        low=0,
        high=0.5,
        help="Share of its rows that each device does not train on; the final model is scored on them, and only counts "
        "summed over all devices are opened.",
    )
    seed: int = setting(default=0, low=0, help="Seed of the choice of test rows and of held-out rows.")
    classes: tuple[str, ...] | None = setting(
        default=None,
        help="Names of the classes in their order, declared public (data.source 'sites'); unset: sites keep their "
        "names, and the model numbers classes.",
    )

    def check(self) -> None:
        """Refuse a source that is neither a known name nor a file, and a share that holds hardly any row out."""
        if self.classes is not None and (not self.elsewhere or len(set(self.classes)) < max(2, len(self.classes))):
            raise ScenarioError(
                f"data.classes = {list(self.classes)} must name at least two classes, each once, where data.source is "
                "'sites'; data sets and files name their own"
            )
        if 0 < self.held_out < _LEAST_SHARE:
            raise ScenarioError(f"data.held_out = {self.held_out:g} must be 0 or at least {_LEAST_SHARE}")
        known = self.named or self.tabular or self.elsewhere or not self.source  # refused where it is read
        if not known and not Path(self.source).suffix:
            raise ScenarioError(
                f"data.source = '{self.source}' must be one of {', '.join((*DATA_SETS, *TABLE_SETS))}, "
                "or a file that ends in .npz, .parquet or .csv"
            )

    @property
    def named(self) -> bool:
        """Whether the source is a data set of images that codedfl knows by name."""
        return self.source in DATA_SETS

    @property
    def tabular(self) -> bool:
        """Whether the source is a table that codedfl knows by name; the defaults of files hold for it."""
        return self.source in TABLE_SETS

    @property
    def elsewhere(self) -> bool:
        """Whether only the sites of a deployment have the data."""
        return self.source == "sites"


class Partition(Settings, table="partition"):
    """Which device holds which samples."""

    kind: str = setting(
        default="iid",
        choices=("iid", "shards", "dirichlet", "sizes", "column", "files"),
        help="iid: equal random parts; shards: sorted by label; dirichlet: skewed labels; sizes: random, unequal; "
        "column: a column names the owner of each row; files: each file of data.source is an owner's. With column and "
        "files there is one device for each owner, and the fleet is spread over them.",
    )
    column: str = setting(default="", help="The column that names the owner; it is no feature (kind column).")
    seed: int = setting(default=0, low=0, help="Seed of the partition.")
    shards_per_device: int = setting(default=2, low=1, help="Label-sorted shards of a device (kind shards).")
    alpha: float = setting(default=0.5, above=0, help="Concentration of labels; small is skewed (kind dirichlet).")
    sizes: tuple[float, ...] = setting(default=(), above=0, help="Relative samples of each device (kind sizes).")

    def check(self) -> None:
        """Refuse owners without the column that names them, and such a column without use."""
        if self.kind == "column" and not self.column:
            raise ScenarioError("partition.kind = 'column' needs partition.column, the column that names the owner")
        if self.column and self.kind != "column":
            raise ScenarioError(
                f"partition.column = '{self.column}' needs partition.kind = 'column', not '{self.kind}'; set one"
            )

    @property
    def by_owner(self) -> bool:
        """Whether the data say who owns each row, so that they determine the number of devices."""
        return self.kind in ("column", "files")


class Categories(Settings, table="features.categories"):
    """The values of a text column, each of which becomes a column of zeros and ones."""

    column: str = setting(help="Name of the text column.")
    values: tuple[str, ...] = setting(help="Its values; others are refused.")

    def check(self) -> None:
        """Refuse no values, and a value twice."""
        if not self.values or len(set(self.values)) < len(self.values):
            raise ScenarioError(f"features.categories of '{self.column}' must name each value once, and at least one")


class Features(Settings, table="features"):
    """The map from raw columns to the features of the linear model, the same on every device."""

    kind: str = setting(
        default="rbf",
        choices=("rbf", "none"),
        help="rbf: random Fourier features of the Gaussian kernel; none: inputs as they are.",
    )
    dimension: int = setting(default=2000, low=1, high=100_000, help="Number of random features (kind rbf).")
    gamma: float = setting(default=0.02, above=0, help="Width of the kernel exp(-gamma |x - y|^2) (kind rbf).")
    seed: int = setting(default=0, low=0, help="Seed of the random features.")
    scale: str = setting(
        default=AUTO,
        choices=(AUTO, "standard", "none"),
        help="standard: columns of mean 0 and variance 1 over all devices, from securely summed columns; none: as they "
        "are; auto: standard for files, none for the data sets.",
    )
    intercept: bool | None = setting(
        default=None, help="Whether the model has an intercept, which is not penalised; unset: for files."
    )
    missing: str = setting(
        default="refuse",
        choices=("refuse", "mean"),
        help="What to do with empty cells: refuse the data, or put the mean of the column over all devices.",
    )
    categories: tuple[Categories, ...] = setting(
        default=(), help="Values of text columns, tables [[features.categories]]; unset: those found in the file."
    )

    def check(self) -> None:
        """Refuse categories of a column twice."""
        names = [each.column for each in self.categories]
        if len(set(names)) < len(names):
            raise ScenarioError(f"features.categories name a column twice, among {', '.join(names)}; merge them")


class Task(Settings, table="task"):
    """The loss to minimise and the numbers that are computed and sent."""

    ridge: float | str | tuple[float, ...] = setting(
        default=9e-6,
        low=0,
        choices=(AUTO,),
        help="Weight lambda of the squared norm of the model in the loss; a list, or auto (30 values from 1e-6 to 10): "
        "the value that predicts rows held out by the devices best.",
    )
    precision: str = setting(
        default=AUTO,
        choices=(AUTO, "float32", "float64"),
        help="Format of data, model and replies; auto: float64 for files, float32 for the data sets.",
    )
    accuracy: float | None = setting(
        default=None,
        above=0,
        below=1,
        help="Largest error that number formats may cause in a gradient, relative to its natural size; formats are "
        "chosen by it; unset: 1e-6 for files, 0.05 for the data sets, whose formats are the paper's.",
    )
    bound_share: float | None = setting(
        default=None,
        above=0,
        help="Largest error that the bound of one device may cause in a gradient, relative to the size that follows "
        "from the median of all devices' bounds; unset: as task.accuracy.",
    )

    loss: str = setting(
        default="squared",
        choices=("squared", "softmax"),
        help="Loss of the outputs: squared error to the targets, or cross entropy of their softmax (schemes "
        "conventional and secagg, classification).",
    )
    folds: int = setting(
        default=5, low=2, high=100, help="Folds into which devices divide their rows to choose task.ridge."
    )
    held_out: float | None = setting(
        default=None,
        above=0,
        high=0.5,
        help="Choose task.ridge on about this share of the rows, held out once; unset: on each of the folds in turn.",
    )

    def check(self) -> None:
        """Refuse a list of weights that is empty or out of order."""
        if isinstance(self.ridge, tuple) and (not self.ridge or list(self.ridge) != sorted(set(self.ridge))):
            raise ScenarioError(f"task.ridge = {list(self.ridge)} must hold at least one number and increase")


class Training(Settings, table="training"):
    """The solver at the server: an epoch is one gradient."""

    solver: str = setting(
        default=AUTO,
        choices=(*SOLVER_NAMES, AUTO),
        help="How the server uses gradients; auto: the solver that the scheme is made for, else conjugate-gradients "
        "for files where the scheme is exact, else gradient-descent.",
    )
    epochs: int = setting(default=1000, low=1, high=1_000_000, help="Upper limit on the number of epochs.")
    learning_rate: float = setting(
        default=6.0, above=0, help="First step size of gradient-descent and nesterov; other solvers choose their own."
    )
    decay: float = setting(default=0.8, above=0, high=1, help="Factor on the learning rate at each of decay_epochs.")
    decay_epochs: tuple[int, ...] = setting(default=(200, 350), low=1, help="Epochs at which the learning rate decays.")
    targets: tuple[float, ...] = setting(
        default=(0.9, 0.95), below=1, help="Test accuracies (R² for regression) whose time is reported, increasing."
    )
    stop_at_last_target: bool = setting(default=False, help="Whether to stop when the last target is reached.")
    tolerance: float | None = setting(
        default=None,
        low=0,
        below=1,
        help="Stop at this gradient norm relative to that of the first model; 0 is never; unset: 1e-10 for files and "
        "conjugate-gradients, else never.",
    )
    first_epoch_offline: bool = setting(
        default=True, help="Whether devices compute the first epoch in advance, so that only its upload takes time."
    )
    start: str | None = setting(
        default=None, help="First model: a .npz file with an array theta, as a run's model.npz; unset: zero."
    )

    def check(self) -> None:
        """Refuse milestones or targets that are out of order, and a first model that is no file of arrays."""
        if self.start is not None and Path(self.start).suffix != ".npz":
            raise ScenarioError(f"training.start = '{self.start}' must be a .npz file, such as the model.npz of a run")
        for name, values in (("decay_epochs", self.decay_epochs), ("targets", self.targets)):
            if list(values) != sorted(set(values)):
                raise ScenarioError(f"training.{name} = {list(values)} must increase")


class DeviceGroup(Settings, table="fleet.devices"):
    """Devices that are alike: how fast they multiply, and links of their own where they differ."""

    count: int = setting(default=1, low=1, help="Number of devices in the group.")
    mac_rate: float = setting(low=1, help="Multiplications (MAC) per second.")
    setup_ratio: float = setting(default=0.5, low=0, help="Mean random delay before computing, in computing times.")
    setup_seconds: float = setting(default=0.0, low=0, help="Mean of a further random delay, in seconds.")
    down_rate: float | None = setting(default=None, low=1, help="Bits per second from the server, if not of links.")
    up_rate: float | None = setting(default=None, low=1, help="Bits per second to the server, if not of links.")
    d2d_rate: float | None = setting(default=None, low=1, help="Bits per second to a device, if not of links.")
    loss: float | None = setting(default=None, low=0, below=1, help="Probability of a failure, if not of links.")
    d2d_loss: float | None = setting(
        default=None, low=0, below=1, help="Probability of a failure when sending to a device, if not of links."
    )
    last_epoch: int | None = setting(default=None, low=1, help="Devices are lost after this epoch; unset: they stay.")


class Fleet(Settings, table="fleet"):
    """The devices, group by group, and the server."""

    devices: tuple[DeviceGroup, ...] = setting(help="Groups of devices that are alike: tables [[fleet.devices]].")
    server_mac_rate: float = setting(default=8.24e12, low=1, help="Multiplications (MAC) per second of the server.")

    def check(self) -> None:
        """Refuse a fleet without devices."""
        if not self.devices:
            raise ScenarioError("fleet.devices = [] must hold at least one group of devices")

    @property
    def size(self) -> int:
        """Number of devices N."""
        return sum(group.count for group in self.devices)

    @property
    def last_epochs(self) -> dict[int, int]:
        """The last epoch of each device that is lost during the training."""
        groups = [group for group in self.devices for _ in range(group.count)]
        return {number: group.last_epoch for number, group in enumerate(groups) if group.last_epoch is not None}


class Links(Settings, table="links"):
    """Bit rates, packet overhead, and the probability that a transmission fails and is sent again."""

    down_rate: float = setting(default=10e6, low=1, help="Bits per second from the server to a device.")
    up_rate: float = setting(default=5e6, low=1, help="Bits per second from a device to the server.")
    d2d_rate: float = setting(default=5e6, low=1, help="Bits per second from a device to another.")
    overhead: float = setting(default=0.1, low=0, help="Header bits sent for each bit of payload.")
    loss: float = setting(default=0.1, low=0, below=1, help="Probability that a transmission fails and is repeated.")
    d2d_loss: float | None = setting(
        default=None, low=0, below=1, help="The same from a device to another; unset: the loss of the sending device."
    )
    d2d_channel: str = setting(
        default="parallel",
        choices=("parallel", "shared"),
        help="Device-to-device links: parallel: each pair has its own; shared: one parcel at a time in the network.",
    )


class Timing(Settings, table="timing"):
    """Random delays: their seed, how many draws make a band, and which draw the run itself uses."""

    seed: int = setting(default=0, low=0, help="Seed of the random delays.")
    draws: int = setting(default=1000, low=2, high=100_000, help="Timing draws behind a 95% band.")
    draw: int = setting(default=0, low=0, help="Number of the draw that the run itself uses.")
    repeats: int = setting(default=5, low=1, help="Trainings behind the band if the model depends on the delays.")
