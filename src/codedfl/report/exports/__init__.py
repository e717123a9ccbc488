"""Runs in the formats of other programs: trace viewers, TensorBoard, MLflow."""

from codedfl.report.exports.mlflow import write_mlflow
from codedfl.report.exports.tensorboard import write_tensorboard
from codedfl.report.exports.trace import write_trace

__all__ = ["write_mlflow", "write_tensorboard", "write_trace"]
