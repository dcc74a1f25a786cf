# SPDX-License-Identifier: Apache-2.0
"""Problems for torch's operators, and gradients in double precision. DEVICES are the devices to run on."""
import ctypes
import pathlib

import normjit.torch
import torch
from torch.nn import functional

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
# True if this torch reports errors to C callers, as newer versions do.
TORCH_SAYS_WHY = hasattr(ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")),
                         "torch_exception_get_what_without_backtrace")
STEP = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10, torch.float64: 2.0**-52}
NORMS = {"layernorm": lambda x, w, b, **o: normjit.torch.layer_norm(x, w, b, **o),
         "rmsnorm": lambda x, w, b, **o: normjit.torch.rms_norm(x, w, **o)}


def layer_norm(x, w, b, normalized=1):
    return functional.layer_norm(x, x.shape[-normalized:], w, b)


def leaf(seed, *shape, dtype=torch.float32, device=None):
    """Returns random numbers that are the same on all devices; on torch's default device if none is given."""
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(shape, generator=generator, dtype=torch.float64)
    return made.to(device or torch.get_default_device(), dtype).requires_grad_()


def case(*shape, dtype=torch.float32, weight_dtype=None, normalized=1, device="cpu"):
    """Returns x, weight and bias, as leaves, and a gradient of y."""
    inner = shape[len(shape) - normalized :]
    w, b = (leaf(seed, *inner, dtype=weight_dtype or dtype, device=device) for seed in (2, 3))
    return leaf(1, *shape, dtype=dtype, device=device), w, b, leaf(4, *shape, dtype=dtype, device=device).detach()


def reference(x, w, b, dy, normalized=1, norm="layernorm"):
    """Returns the gradients of x, w and b by the definition, in double, for eps = 1e-5."""
    shape = x.shape
    cols = shape[len(shape) - normalized :].numel()
    x, dy = (t.detach().double().reshape(-1, cols) for t in (x, dy))
    centred = x - x.mean(1, keepdim=True) if norm == "layernorm" else x
    rstd = (centred.square().mean(1, keepdim=True) + 1e-5).rsqrt()
    xhat = centred * rstd
    g = dy if w is None else dy * w.detach().double().reshape(-1)
    dx = g - xhat * (g * xhat).mean(1, keepdim=True)
    if norm == "layernorm":
        dx = dx - g.mean(1, keepdim=True)
    of_vector = lambda t, like: None if like is None else t.reshape(like.shape)  # noqa: E731
    return (rstd * dx).reshape(shape), of_vector((dy * xhat).sum(0), w), of_vector(dy.sum(0), b)


def assert_close(got, wanted, what="", stored=None):
    """Asserts equality up to the type's spacing and errors of f32 sums. `stored` is the type of the statistics, if it
    is narrower."""
    if wanted is None:
        assert got is None, what
        return
    assert got is not None and got.shape == wanted.shape, what
    if wanted.numel() == 0:
        return
    bound = 0.51 * STEP[got.dtype] + (1e-13 if got.dtype == torch.float64 else 4e-6) + 2 * STEP.get(stored, 0.0)
    error = float((got.double() - wanted).abs().max() / wanted.abs().max().clamp(min=1.0))
    assert error <= bound, f"{what}: {error:.3g} of the largest element wrong; at most {bound:.3g}"


def check(x, w, b, dy, normalized=1, stored=None):
    """Checks the gradients that backward() left."""
    for what, leaf_, wanted in zip(("dx", "dgamma", "dbeta"), (x, w, b), reference(x, w, b, dy, normalized)):
        if leaf_ is not None and leaf_.requires_grad:
            assert_close(leaf_.grad, wanted, what, stored)


class Served:
    """Counts the calls that normjit's kernels serve inside the with statement, and fails if any are left to torch's."""

    def __init__(self, calls):
        self.calls = calls

    def __enter__(self):
        self.before = normjit.torch.report()
        return self

    def __exit__(self, kind, *_):
        after = normjit.torch.report()
        if kind is None:
            assert after["left_to_torch"] == self.before["left_to_torch"], after["reason"]
            assert after["calls"] - self.before["calls"] == self.calls


def assert_gradients(norm, x, w, b, dy):
    """Compares the gradients of a norm's tensors with the reference."""
    right = reference(x, w, b if norm == "layernorm" else None, dy, norm=norm)
    for what, tensor, wanted in zip(("dx", "dgamma", "dbeta"), (x, w, b), right):
        if tensor is not None and wanted is not None:
            assert_close(tensor.grad, wanted, what)


def passes(module, x):
    x = x.detach().requires_grad_()
    y = module(x)
    return y, *torch.autograd.grad(y.pow(3).sum(), [x, *module.parameters()])
