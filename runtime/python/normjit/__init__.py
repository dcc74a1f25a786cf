# SPDX-License-Identifier: Apache-2.0
"""LayerNorm and RMSNorm and their gradients by kernels that are compiled for each shape.

layer_norm, rms_norm                     on arrays of NumPy, CuPy, PyTorch, anything with DLPack
layer_norm_backward, rms_norm_backward   their gradients
compile, info, tune                      what the program `normjit` does
normjit.torch                            PyTorch: torch's own operators by normjit's kernels
"""
from normjit._library import Error, InvalidArgument, Unavailable
from normjit.arrays import Gradients, Layer, layer_norm, layer_norm_backward, rms_norm, rms_norm_backward
from normjit.program import compile, info, tune

__all__ = ["Error", "Gradients", "InvalidArgument", "Layer", "Unavailable", "compile", "info", "layer_norm",
           "layer_norm_backward", "rms_norm", "rms_norm_backward", "tune"]
