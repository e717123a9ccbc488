"""Data sets: sources and files, the partition among devices, and feature maps."""

from codedfl.data.dataset import Dataset
from codedfl.data.features import FeatureMap
from codedfl.data.files import load_file, read_rows
from codedfl.data.loading import load
from codedfl.data.partition import partition
from codedfl.data.preparation import Column, Preparation
from codedfl.data.rows import load_rows
from codedfl.data.sources.known import SOURCES, fetch, load_named

__all__ = [
    "SOURCES",
    "Column",
    "Dataset",
    "FeatureMap",
    "Preparation",
    "fetch",
    "load",
    "load_file",
    "load_named",
    "load_rows",
    "partition",
    "read_rows",
]
