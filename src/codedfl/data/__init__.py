"""Data sets: sources and files, the partition among devices, and feature maps."""

from codedfl.data.dataset import Dataset
from codedfl.data.features import FeatureMap
from codedfl.data.files import load_file, read_rows
from codedfl.data.loading import fetch, load, resolve
from codedfl.data.partition import partition
from codedfl.data.preparation import Column, Preparation
from codedfl.data.rows import Rows, load_rows
from codedfl.data.sources.known import SOURCES, load_named
from codedfl.data.sources.tables import TABLES, read_known_table

__all__ = [
    "SOURCES",
    "TABLES",
    "Column",
    "Dataset",
    "FeatureMap",
    "Preparation",
    "Rows",
    "fetch",
    "load",
    "load_file",
    "load_named",
    "load_rows",
    "partition",
    "read_known_table",
    "read_rows",
    "resolve",
]
