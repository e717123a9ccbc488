"""The learning task: shards, Gram matrices, loss and scores."""

from codedfl.task.loading import RawData, feature_map, load_data, partition_rows, with_owners
from codedfl.task.metrics import accuracy
from codedfl.task.problem import Problem, learning_rate
from codedfl.task.shard import Shard, gram, make_shard

__all__ = [
    "Problem",
    "RawData",
    "Shard",
    "accuracy",
    "feature_map",
    "gram",
    "learning_rate",
    "load_data",
    "make_shard",
    "partition_rows",
    "with_owners",
]
