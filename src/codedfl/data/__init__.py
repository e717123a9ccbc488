"""Data: where it comes from, who holds which part of it, and the features made of it."""

from codedfl.data.dataset import Dataset
from codedfl.data.features import FEATURE_KINDS, FeatureMap
from codedfl.data.files import load_file
from codedfl.data.loading import load
from codedfl.data.partition import PARTITION_KINDS, partition
from codedfl.data.rows import Rows, load_rows
from codedfl.data.sources.known import SOURCES, Source, fetch, load_named

__all__ = [
    "FEATURE_KINDS",
    "PARTITION_KINDS",
    "SOURCES",
    "Dataset",
    "FeatureMap",
    "Rows",
    "Source",
    "fetch",
    "load",
    "load_file",
    "load_named",
    "load_rows",
    "partition",
]
