# SPDX-License-Identifier: Apache-2.0
"""layer_norm and rms_norm for JAX with normjit's backward pass, and formulas, on CPUs and NVIDIA GPUs.

    from normjit.jax import formula, layer_norm, rms_norm

The forward pass of the last two is jax.numpy, which XLA fuses with its neighbours. All else is calls from XLA into
libnormjit_jax.so, through its foreign function interface. jit, grad, vmap, shard_map and checkpoints work. Derivatives of
gradients are computed by JAX's own operations. JAX refuses forward mode and, inside of scan, second derivatives of
formulas and third ones of the norms, because it forgets there how foreign calls are differentiated.

jax.export refuses calls whose stability JAX does not guarantee, unless the caller allows them:

    from jax import export
    checks = [export.DisabledSafetyCheck.custom_call("normjit_backward")]  # of formulas: normjit_formula
    exported = export.export(jax.jit(jax.grad(loss)), disabled_checks=checks)(x, scale, bias)

The process that runs the exported program imports normjit.jax, of the version that exported it or a newer one with the
same first two numbers. Programs for GPUs are exported on a machine with a GPU."""
from __future__ import annotations

import ctypes
import dataclasses
import functools
import importlib.util
import math
import os

from normjit import _library
from normjit._library import InvalidArgument, Unavailable
from normjit.arrays import number

_library.require("jax", "0.6", by="normjit.jax")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.typing import ArrayLike  # noqa: E402

from normjit._jax_composition import compute_type  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["formula", "layer_norm", "rms_norm"]

HANDLERS = ("backward", "formula")  # functions of libnormjit_jax.so
DTYPES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "float64": "f64"}
PLATFORMS = {"cpu": "cpu", "cuda": "CUDA"}  # XLA's names, by JAX's names


def layer_norm(x: ArrayLike, scale: ArrayLike | None = None, bias: ArrayLike | None = None,
               epsilon: float = 1e-5) -> jax.Array:
    """Returns (x - mean) * rsqrt(variance + epsilon) * scale + bias over the last dimension, computed in f32 (f64
    for an x of that type) and rounded once, to x's type. scale and bias are [N] or None, of any floating-point
    type."""
    y: jax.Array = _norm("layernorm", x, scale, bias, epsilon, 0.0)
    return y


def rms_norm(x: ArrayLike, scale: ArrayLike | None = None, epsilon: float = 1e-6,
             scale_offset: float = 0.0) -> jax.Array:
    """Returns x * rsqrt(mean(x^2) + epsilon) * (scale + scale_offset); scale_offset=1 is a zero-centred scale. All
    else is as in layer_norm()."""
    y: jax.Array = _norm("rmsnorm", x, scale, None, epsilon, scale_offset)
    return y


def formula(text: str) -> "Callable[..., Any]":
    """Returns a function of JAX arrays for a formula's text, or for the name of a norm in the library, with normjit's
    kernels for its forward and backward pass.

        gated = formula("norm gated(x[M,N], z[M,N], gamma[N]) -> y[M,N] "
                        "{ y = x * rsqrt(row_mean(x * x) + eps) * gamma * silu(z) }")
        y = gated(x=x, z=z, gamma=gamma, eps=1e-6)

    The function takes the inputs by name, and the numbers, which jit must know; an optional input may be None or left
    out. It returns the output, or several as a named tuple: those that are not optional, or those in outputs=. dtypes=
    gives outputs types other than the first matrix's, such as {"y": jnp.float8_e4m3fn}. A tensor [M] has x's shape
    without the last dimension; with slices the first dimension of x is S. jit, grad, vmap, shard_map and checkpoints
    work. Second derivatives are computed by JAX's own operations, and JAX refuses them inside of scan. It refuses
    forward mode. Raises normjit.InvalidArgument."""
    from normjit import _jax_formulas

    return _jax_formulas.Formula(text)


def _norm(norm, x, scale, bias, epsilon, scale_offset):
    if x is None:
        raise InvalidArgument("x: is None; must be an array")
    x, scale, bias = (_array(name, array) for name, array in (("x", x), ("scale", scale), ("bias", bias)))
    if x.ndim == 0:
        raise InvalidArgument("x: has no dimensions; the last must be the normalised one")
    for name, array in (("x", x), ("scale", scale), ("bias", bias)):
        if array is None:
            continue
        if array.dtype.name not in DTYPES:
            raise InvalidArgument(f"{name}: its type is {array.dtype.name}; allowed: {', '.join(DTYPES)}")
        if name != "x" and array.shape != x.shape[-1:]:
            raise InvalidArgument(f"{name}: its shape is {array.shape}; must be {x.shape[-1:]}")
    return _compiled(x, scale, bias, norm, _number("epsilon", epsilon, 0), _number("scale_offset", scale_offset))


def _number(name, given, least=None):
    if isinstance(given, jax.core.Tracer):
        raise InvalidArgument(f"{name}: is a tracer of JAX's; must be a known number, as jit's static_argnames leaves it")
    return number(name, given, least)


def _array(name, given):
    """Returns a JAX array, or None. Where JAX's f64 is off, an array of f64 from elsewhere is f32, as JAX has it."""
    if given is None:
        return None
    try:
        array = jnp.asarray(given)
        return array.astype(jax.dtypes.canonicalize_dtype(jnp.float64)) if array.dtype == jnp.float64 else array
    except (TypeError, ValueError) as error:
        what = f"elements of type {given.dtype}" if hasattr(given, "__array_interface__") else "it"
        raise InvalidArgument(f"{name}: JAX makes no array of {what}: {error}") from error


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def _differentiable(x, scale, bias, norm, epsilon, scale_offset):
    return _forward(x, scale, bias, norm, epsilon, scale_offset)[0]


def _forward(x, scale, bias, norm, epsilon, scale_offset):
    """Returns y, and what the backward pass needs."""
    wide = compute_type(x)
    h = x.astype(wide)
    mean = jnp.mean(h, -1, keepdims=True) if norm == "layernorm" else None
    centred = h if mean is None else h - mean
    rstd = jax.lax.rsqrt(jnp.mean(jnp.square(centred), -1, keepdims=True) + epsilon)
    y = centred * rstd
    if scale is not None:
        y = y * _as_row(scale.astype(wide) + scale_offset, y)
    if bias is not None:
        y = y + _as_row(bias.astype(wide), y)
    return y.astype(x.dtype), (x, scale, bias, mean, rstd)


def _as_row(weight, y):
    """Returns an [N] array with as many dimensions as y, because JAX may be configured to refuse other shapes."""
    return jnp.expand_dims(weight, tuple(range(y.ndim - 1)))


def _backward(norm, epsilon, scale_offset, saved, dy):
    x, scale, bias, mean, rstd = saved
    cols, rows = x.shape[-1], math.prod(x.shape[:-1])
    if not isinstance(cols, int):
        raise InvalidArgument(f"x: its shape is {x.shape}; the last dimension must be a number, for which a kernel is made")
    if x.size == 0:
        return tuple(None if t is None else jnp.zeros_like(t) for t in (x, scale, bias))
    shardings = dict(zip(("dx", "dgamma", "dbeta"), map(_sharding, (x, scale, bias))))
    x, scale, bias, mean, rstd, dy = (_gathered(t) for t in (x, scale, bias, mean, rstd, dy))
    matrices = [t.reshape(rows, cols) for t in (x, dy)]
    weight = None if scale is None else scale.astype(_beside(x, scale))
    wanted = [(name, like) for name, like in (("dx", x), ("dgamma", scale), ("dbeta", bias)) if like is not None]
    made = tuple((name, _beside(x, like)) for name, like in wanted)
    types = {"x": x.dtype, "dy": dy.dtype, "gamma": None if weight is None else weight.dtype, **dict(made)}
    problem = _Problem(norm, cols, _types(types), made, scale_offset if scale is not None else 0.0)
    operands = _alike(matrices + [t.reshape(-1) for t in (weight, mean, rstd) if t is not None])
    gradients = _differentiable_gradients(problem, *operands)
    found = {name: _summed(gradient.reshape(like.shape).astype(like.dtype), like)
             for (name, like), gradient in zip(wanted, gradients)}
    return tuple(_sharded(found.get(name), sharding) for name, sharding in shardings.items())


def _sharding(array):
    """Returns the sharding in an array's type, which JAX keeps there for meshes with explicit axes; else None."""
    sharding = None if array is None else getattr(jax.typeof(array), "sharding", None)
    return sharding if sharding is not None and any(sharding.spec) else None


def _gathered(array):
    """Returns the array replicated on every device, because XLA does not partition foreign calls."""
    sharding = _sharding(array)
    return array if sharding is None else _sharded(array, sharding.update(spec=jax.sharding.PartitionSpec()))


def _sharded(array, sharding):
    return array if array is None or sharding is None else jax.sharding.reshard(array, sharding)


def _beside(x, other):
    """Returns the type in which a kernel for x takes another tensor, since f64 does not mix with other types."""
    return other.dtype if compute_type(other) == compute_type(x) else jnp.dtype(compute_type(x))


_differentiable.defvjp(lambda x, scale, bias, norm, epsilon, scale_offset: _forward(
    x, scale, bias, norm, epsilon, scale_offset), _backward)
_compiled = jax.jit(_differentiable, static_argnums=(3, 4, 5))  # outside of jit, JAX would compile the call of XLA
                                                                # each time


def _types(types):
    return " ".join(f"{name}={'none' if t is None else DTYPES[t.name]}" for name, t in types.items())


@dataclasses.dataclass(frozen=True)
class _Problem:
    """A backward pass of [M,N] or, in slices, of [S,M,N], where weights and their gradients are [S,N]."""

    norm: str
    cols: int
    types: str
    wanted: tuple  # (name, type) of each result
    scale_offset: float
    in_slices: bool = False

    def weights(self):
        return [name[1:] for name, _ in self.wanted if name != "dx"]

    def spec(self):
        parts = [self.norm, f"cols={self.cols}", self.types, f"out={','.join(name for name, _ in self.wanted)}"]
        parts += [f"gamma_offset={self.scale_offset!r}"] if self.scale_offset else []
        parts += ["slices=any", f"per_slice={','.join(self.weights())}"] if self.in_slices else []
        return " ".join(parts)

    def results(self, x):
        """Returns shapes and types for an x."""
        of_weight = (*x.shape[:-2], self.cols)
        return [(x.shape if name == "dx" else of_weight, dtype) for name, dtype in self.wanted]


def _differentiable_gradients(problem, *operands):
    """Computes gradients by normjit's kernel, and their derivatives, if they are asked for, by JAX's operations."""
    return with_derivatives(functools.partial(_gradients, problem), functools.partial(_definition, problem))(*operands)


def with_derivatives(function, definition):
    """Returns the function with the derivatives of its definition."""
    ruled = jax.custom_jvp(function)
    ruled.defjvp(lambda operands, tangents: (ruled(*operands), jax.jvp(definition, operands, tangents)[1]))
    return ruled


def _definition(problem, x, dy, *others):
    """Returns the gradients that _gradients() computes, by JAX's operations."""
    wide = compute_type(x)
    x, dy, *others = (t.astype(wide) for t in (x, dy, *others))
    rstd, others = others[-1][:, None], others[:-1]
    has_mean = problem.norm == "layernorm"
    y = (x - others.pop()[:, None] if has_mean else x) * rstd
    g = dy * _as_row(others[0] + problem.scale_offset, dy) if others else dy
    dx = rstd * (g - y * jnp.mean(g * y, -1, keepdims=True) - (jnp.mean(g, -1, keepdims=True) if has_mean else 0))
    found = {"dx": dx, "dgamma": jnp.sum(dy * y, 0), "dbeta": jnp.sum(dy, 0)}
    return tuple(found[name].astype(dtype) for name, dtype in problem.wanted)


def _gradients(problem, *operands):
    """Computes gradients from those of x, dy, scale, mean and rstd that exist. Under vmap there is one call for all
    elements: each becomes a slice or, without weights, further rows."""
    call = jax.custom_batching.custom_vmap(functools.partial(_call, problem))

    @call.def_vmap
    def of_batch(size, is_batched, *operands):
        operands = [t if batched else jnp.broadcast_to(t, (size, *t.shape)) for t, batched in zip(operands, is_batched)]
        inner = dataclasses.replace(problem, in_slices=bool(problem.weights()))
        if problem.in_slices == inner.in_slices:  # the batch becomes more slices, or more rows
            count = operands[0].shape[1]  # the size of x, which is counted because -1 does not work if there are no
                                          # elements
            found = _gradients(inner, *(t.reshape(size * count, *t.shape[2:]) for t in operands))
            found = [t.reshape(size, count, *t.shape[1:]) for t in found]
        else:
            found = _gradients(inner, *operands)
        return tuple(found), (True,) * len(found)

    return call(*operands)


def _call(problem, *operands):
    return call_handler("backward", problem.results(operands[0]), *operands, spec=problem.spec())


def call_handler(kind, results, *operands, slices=0, **attributes):
    """Calls a handler of the platform for which the computation is compiled; JAX refuses to compile it for others.
    `results` are shapes and types. `slices` are those of the first operand, or 0 if the spec has none."""
    def on(platform, x, *others):
        of_rows = (1, 0) if platform == "cpu" else (_count_rows(x), slices)  # the CPU's handler provides its workspace
        workspace = max(_prepare(device, attributes["spec"], *of_rows) for device in _devices(platform))
        made = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results]
        if platform == "cuda":  # this is XLA's memory, which lives as long as a graph that captured the call
            made.append(jax.ShapeDtypeStruct((max(workspace, 1),), jnp.uint8))
        found = jax.ffi.ffi_call(f"normjit_{kind}", made)(x, *others, **attributes)
        return tuple(_alike([x, *found[: len(results)]])[1:])

    return jax.lax.platform_dependent(*operands, **{each: functools.partial(on, each) for each in _platforms()})


def _count_rows(x):
    if not all(isinstance(size, int) for size in x.shape):
        raise InvalidArgument(
            f"x: its shape is {x.shape}; on a GPU the number of rows decides the workspace: export it for numbers of rows"
        )
    return math.prod(x.shape[:-1])


def _devices(platform):
    """Returns all devices on which a call may run. Kernels are made for all of them, because none can be made inside a
    graph."""
    if platform == "cpu":
        return ["cpu"]
    return [f"cuda:{device.local_hardware_id}" for device in jax.local_devices(backend="gpu")]


def _prepare(device, spec, rows, slices):
    """Makes the kernel, and returns the bytes of its preferred workspace for that many rows, counting those of all
    slices."""
    workspace = ctypes.c_int64()
    if _load().normjit_jax_prepare(device.encode(), spec.encode(), ctypes.c_int64(rows), ctypes.c_int64(slices),
                                   ctypes.byref(workspace)):
        raise _library.Error(_load().normjit_jax_last_error().decode(errors="replace"))
    return workspace.value


def _axes(array):
    """Returns the axes of a mesh over which an array differs from device to device, inside shard_map."""
    kind = jax.typeof(array)
    manual = getattr(kind, "manual_axis_type", None)  # newer versions have it
    return frozenset(getattr(kind, "vma", ()) if manual is None else manual.varying)


def _alike(arrays):
    """Makes all arrays differ over the same mesh axes, as the operands of a call must, and returns them."""
    axes = frozenset().union(*map(_axes, arrays))
    return [_varying(array, tuple(sorted(axes - _axes(array)))) for array in arrays]


def _varying(array, axes):
    if not axes:
        return array
    return jax.lax.pcast(array, axes, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary(array, axes)


def _summed(gradient, like):
    """Sums a gradient over the mesh axes over which the gradient differs from device to device but its value does
    not."""
    missing = _axes(gradient) - _axes(like)
    return jax.lax.psum(gradient, tuple(sorted(missing))) if missing else gradient


@functools.lru_cache(maxsize=None)
def _load():
    loaded = _library.load("libnormjit_jax.so")
    loaded.normjit_jax_last_error.restype = ctypes.c_char_p
    return loaded


@functools.lru_cache(maxsize=None)
def _platforms():
    """Returns the platforms that a computation can be compiled for here."""
    found = ["cpu"]
    try:
        if jax.local_devices(backend="gpu")[0].client.platform_version.startswith("cuda"):
            _library.load_nvrtc()
            found.append("cuda")
    except RuntimeError:  # JAX raises it if there is none
        pass
    if jax.default_backend() not in ("cpu", "gpu")[: len(found)]:
        raise Unavailable(f"JAX runs on {jax.default_backend()}; normjit serves cpu and NVIDIA's GPUs")
    return tuple(found)


def _register():
    """Registers the handlers with XLA. Programs that another process has exported call them as well. Starts no platform
    of JAX; a platform that starts later is registered at that time."""
    for kind in HANDLERS:
        for platform, of_xla in PLATFORMS.items():
            handler = jax.ffi.pycapsule(getattr(_load(), f"normjit_jax_{kind}_{platform}"))
            jax.ffi.register_ffi_target(f"normjit_{kind}", handler, platform=of_xla)
    plugins = importlib.util.find_spec("jax_plugins")
    folders = (plugins and plugins.submodule_search_locations) or ()
    if any(name.startswith("xla_cuda") for folder in folders for name in os.listdir(folder)):
        _library.load_nvrtc()


_register()
