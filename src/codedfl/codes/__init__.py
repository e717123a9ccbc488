"""Codes over the reals: graphs, generators, erasure decoders, supports; MDS and gradient codes over prime fields."""

from codedfl.codes.bounds import johnson_bound, least_overlap
from codedfl.codes.constant_weight import (
    Family,
    affine_hyperplanes,
    affine_lines,
    family,
    greedy_random,
    partition_family,
)
from codedfl.codes.erasure import DECODERS, Diagnosis, ErasureDecoder, Plan, decodable, draw_support
from codedfl.codes.frame_errors import FrameErrorRate, frame_error_rate, wilson_interval
from codedfl.codes.gradient_code import GradientCode
from codedfl.codes.graph import TannerGraph, configuration_model, progressive_edge_growth
from codedfl.codes.mdpc import CodeReport, MdpcCode
from codedfl.codes.mds import MdsCode

__all__ = [
    "DECODERS",
    "CodeReport",
    "Diagnosis",
    "ErasureDecoder",
    "Family",
    "FrameErrorRate",
    "GradientCode",
    "MdpcCode",
    "MdsCode",
    "Plan",
    "TannerGraph",
    "affine_hyperplanes",
    "affine_lines",
    "configuration_model",
    "decodable",
    "draw_support",
    "family",
    "frame_error_rate",
    "greedy_random",
    "johnson_bound",
    "least_overlap",
    "partition_family",
    "progressive_edge_growth",
    "wilson_interval",
]
