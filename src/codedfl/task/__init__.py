"""The learning task: shards, Gram matrices, loss and score."""

from codedfl.task.objective import Scores, accuracy, r_squared
from codedfl.task.problem import Problem, Shard, feature_map, gram, learning_rate, load_data, load_shard, partition_rows

__all__ = [
    "Problem",
    "Scores",
    "Shard",
    "accuracy",
    "feature_map",
    "gram",
    "learning_rate",
    "load_data",
    "load_shard",
    "partition_rows",
    "r_squared",
]
