"""The learning task: shards, Gram matrices, loss and scores."""

from codedfl.task.objective import accuracy
from codedfl.task.problem import Problem, Shard, feature_map, gram, learning_rate, load_data, load_shard, partition_rows

__all__ = [
    "Problem",
    "Shard",
    "accuracy",
    "feature_map",
    "gram",
    "learning_rate",
    "load_data",
    "load_shard",
    "partition_rows",
]
