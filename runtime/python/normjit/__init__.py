# SPDX-License-Identifier: Apache-2.0
"""Gradients of LayerNorm and RMSNorm by kernels that are compiled for each shape.

layer_norm_backward, rms_norm_backward   on arrays of NumPy, CuPy, PyTorch, anything with DLPack
compile, info, tune                      what the program `normjit` does
normjit.torch                            PyTorch: torch's own operators by normjit's kernels
"""
from normjit._library import Error, InvalidArgument, Unavailable
from normjit.arrays import Gradients, layer_norm_backward, rms_norm_backward
from normjit.program import compile, info, tune

__all__ = ["Error", "Gradients", "InvalidArgument", "Unavailable", "compile", "info", "layer_norm_backward",
           "rms_norm_backward", "tune"]
