# SPDX-License-Identifier: Apache-2.0
"""LayerNorm, RMSNorm and their gradients, from kernels that are compiled for each shape.

layer_norm, rms_norm                     on arrays of NumPy, CuPy, PyTorch, anything with DLPack
layer_norm_backward, rms_norm_backward   their gradients
formula                                  any norm from a few lines of text, with its gradient
compile, info, tune                      what the program `normjit` does
normjit.torch                            PyTorch: torch's own operators with normjit's kernels
normjit.jax                              JAX: functions whose gradients are normjit's
normjit.tvm_ffi                          kernels as functions of tvm-ffi

The last three are imported at their first use."""
from normjit._library import VERSION as __version__, Error, InvalidArgument, Unavailable
from normjit.arrays import Gradients, Layer, layer_norm, layer_norm_backward, rms_norm, rms_norm_backward
from normjit.formulas import Formula, formula
from normjit.program import compile, info, tune

__all__ = ["Error", "Formula", "Gradients", "InvalidArgument", "Layer", "Unavailable", "__version__", "compile",
           "formula", "info", "layer_norm", "layer_norm_backward", "rms_norm", "rms_norm_backward", "tune"]
_SUBMODULES = ("jax", "torch", "tvm_ffi")  # each is named after the package that it serves

TYPE_CHECKING = False  # like typing.TYPE_CHECKING, but importing typing takes milliseconds
if TYPE_CHECKING:
    from normjit import jax as jax, torch as torch, tvm_ffi as tvm_ffi
else:

    def __getattr__(name):
        if name not in _SUBMODULES:
            raise AttributeError(f"module 'normjit' has no attribute {name!r}")
        import importlib

        try:
            return importlib.import_module(f"normjit.{name}")
        except ModuleNotFoundError as error:
            if error.name != name:  # the package exists, but is broken
                raise
            raise AttributeError(str(error)) from error


def __dir__() -> "list[str]":
    import importlib.util

    return sorted([*globals(), *(name for name in _SUBMODULES if importlib.util.find_spec(name) is not None)])
