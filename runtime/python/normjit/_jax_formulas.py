# SPDX-License-Identifier: Apache-2.0
"""Formulas in JAX: calls from XLA into libnormjit_jax.so, forward and backward. normjit.jax.formula() describes
them."""
from __future__ import annotations

import collections
import dataclasses
import functools
import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from normjit import _jax_composition as composition
from normjit import _operand, formulas
from normjit import jax as calls
from normjit._library import InvalidArgument
from normjit.arrays import names_in

DTYPES = {name: _operand.DTYPE_CODES[code] for name, code in _operand.NUMPY_CODES.items()}

Arrays = tuple[Any, ...]
Shape = tuple[int, ...]
_Result = tuple[Any, Shape, Any]  # a tensor of formulas.py, its shape and its type

# What formulas.py requires of an operand.
_Operand = collections.namedtuple("_Operand", ("name", "shape", "device"))


@dataclasses.dataclass(frozen=True)
class _Problem:
    """A call of a formula: the names of its arrays in the order in which they are passed, and everything that is not
    traced."""

    text: str
    names: tuple[str, ...]
    numbers: tuple[tuple[str, float], ...]
    outputs: tuple[str, ...]
    dtypes: tuple[tuple[str, str], ...]  # of outputs whose type is not the usual one

    @property
    def norm(self) -> formulas.Formula:
        return formulas.formula(self.text)

    @property
    def first(self) -> str:
        name = self.norm.first_matrix(self.names)
        assert name is not None
        return name


class Formula:
    """A formula as a function of JAX arrays. Formulas with the same text are equal, so that jit compiles only for one
    of them."""

    def __init__(self, text: str) -> None:
        self.norm = formulas.formula(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formula) and self.norm.text == other.norm.text

    def __hash__(self) -> int:
        return hash(self.norm.text)

    def __repr__(self) -> str:
        return f"normjit.jax.formula({self.norm.text!r})"

    def __call__(self, *, outputs: str | Iterable[str] | None = None, dtypes: Mapping[str, Any] | None = None, **given: Any) -> Any:
        norm = self.norm
        given = {name: value for name, value in given.items() if value is not None}
        norm.check_names(given, norm._inputs)
        numbers = {name: calls._number(name, value) for name, value in given.items() if name in norm.numbers}
        arrays = {name: calls._array(name, given[name]) for name in norm.inputs if name in given}
        for name, array in arrays.items():
            if array.dtype.name not in DTYPES:
                raise InvalidArgument(f"{name}: its type is {array.dtype.name}; allowed: {', '.join(DTYPES)}")
        first = norm.first_matrix(arrays)
        if first is None:
            raise InvalidArgument(f"{norm.name}: no input is a matrix, whose shape decides")
        if arrays[first].ndim < (2 if norm._has_slices else 1):
            raise InvalidArgument(f"{first}: its shape is {arrays[first].shape}; the last dimension must be the normalised one"
                                  + ", and the first the slices" * norm._has_slices)
        like = _Operand(first, arrays[first].shape, "")
        for name, array in arrays.items():
            operand = _Operand(name, array.shape, "")
            formulas._find_run(operand, norm._inputs[name], like, numbers)
            formulas._check_shape(operand, norm._inputs[name], like, numbers)
        wanted = _wanted(norm, outputs)
        problem = _Problem(norm.text, tuple(arrays), tuple(sorted(numbers.items())), wanted, _dtypes(norm, wanted, dtypes))
        made = _compiled(problem, *arrays.values())
        return made[0] if len(wanted) == 1 else formulas._results(norm.name, wanted)(*made)


def _wanted(norm: formulas.Formula, outputs: str | Iterable[str] | None) -> tuple[str, ...]:
    wanted = [name for name in norm.outputs if name not in norm.optional] if outputs is None else names_in(outputs)
    wrong = [name for name in wanted if name not in norm.outputs]
    if wrong or not wanted or len(set(wanted)) < len(wanted):
        raise InvalidArgument(f"outputs: {', '.join(map(repr, wrong or wanted)) or 'none'}; allowed: {', '.join(norm.outputs)}, each once")
    return tuple(wanted)


def _dtypes(norm: formulas.Formula, wanted: tuple[str, ...], dtypes: Mapping[str, Any] | None) -> tuple[tuple[str, str], ...]:
    if not isinstance(dtypes, (Mapping, type(None))):
        raise InvalidArgument(f"dtypes: is {type(dtypes).__name__}; must be a mapping of outputs' names to types")
    found = {}
    for name, dtype in (dtypes or {}).items():
        try:
            found[name] = "None" if dtype is None else jnp.dtype(dtype).name  # for NumPy, None is float64
        except TypeError:
            found[name] = repr(dtype)
        if name not in wanted or found[name] not in DTYPES:
            raise InvalidArgument(f"dtypes: {name}: {found[name]}; allowed are the outputs {', '.join(wanted)} with {', '.join(DTYPES)}")
    return tuple(sorted(found.items()))


def _differentiable(problem: _Problem, *arrays: Any) -> Arrays:
    @jax.custom_vjp
    def computed(*arrays: Any) -> Arrays:
        return _forward(problem, arrays)

    computed.defvjp(functools.partial(_kept, problem), functools.partial(_pulled, problem), symbolic_zeros=True)
    made: Arrays = computed(*arrays)
    return made


def _forward(problem: _Problem, arrays: Arrays) -> Arrays:
    given = dict(zip(problem.names, arrays))
    results = {name: _output(problem, name, given[problem.first]) for name in problem.outputs}
    return _computed(problem, "forward", given, problem.norm._inputs, results)


def _output(problem: _Problem, name: str, like: Any) -> _Result:
    """Returns an output's tensor, shape and type, given the first matrix."""
    tensor = problem.norm._outputs[name]
    shape = formulas._shapes(tensor, _Operand(problem.first, like.shape, ""), dict(problem.numbers))[0]
    is_small = tensor.axes in ("M", "S,M", "") or (tensor.run and "M" in tensor.axes)
    usual = composition.compute_type(like) if is_small else like.dtype
    return tensor, shape, jnp.dtype(dict(problem.dtypes).get(name, usual))


def _kept(problem: _Problem, *arrays: Any) -> Any:
    """Returns the outputs, and what the backward pass needs: the inputs, and for each whether it needs a gradient.
    JAX remembers one structure for all backward passes of a problem, so the answer is the type of a number."""
    norm = problem.norm
    norm.check_gradient()
    for name, array in zip(problem.names, arrays):
        if array.perturbed and norm._inputs[name].is_shared:
            raise InvalidArgument(f"{name}: all slices share it, so that it has no gradient; pass it through jax.lax.stop_gradient()")
    values = tuple(array.value for array in arrays)
    return _forward(problem, values), (values, tuple(_need(array.perturbed) for array in arrays))


def _need(is_perturbed: bool) -> Any:
    return jnp.zeros((), bool if is_perturbed else "int8")


def _pulled(problem: _Problem, kept: Any, above: Arrays) -> Arrays:
    arrays, needs = kept
    perturbed = tuple(need.dtype == bool for need in needs)
    norm, given = problem.norm, dict(zip(problem.names, arrays))
    readable, gradients = dict(norm._inputs), {}
    used = {name: gradient for name, gradient in zip(problem.outputs, above)
            if not isinstance(gradient, jax.custom_derivatives.SymbolicZero) and gradient.dtype != jax.dtypes.float0}
    given.update((f"d{name}", gradient) for name, gradient in used.items())
    readable.update((f"d{name}", norm._outputs[name]) for name in used)
    text = norm.with_optional(name for name in norm.outputs if name not in used)
    zeros = formulas.formula(text).without_gradient(given, dict(problem.numbers))
    for name, array, is_wanted in zip(problem.names, arrays, perturbed):
        if used and is_wanted and name not in zeros:
            dtype = jnp.float32 if array.dtype.itemsize == 1 else array.dtype
            gradients[f"d{name}"] = (norm._inputs[name], array.shape, jnp.dtype(dtype))
    all_inputs = tuple(not norm._inputs[name].is_shared for name in problem.names)
    is_whole = len(used) == len(above) and perturbed == all_inputs
    if gradients and not is_whole and not formulas.formula(text).reads_matrix(given, dict(problem.numbers), gradients):
        whole = (used.get(name, jnp.zeros(*_output(problem, name, given[problem.first])[1:])) for name in problem.outputs)
        made = _pulled(problem, (arrays, tuple(map(_need, all_inputs))), tuple(whole))  # a kernel reads a matrix
        return tuple(each if is_wanted else jnp.zeros_like(each) for each, is_wanted in zip(made, perturbed))
    found = dict(zip(gradients, _computed(dataclasses.replace(problem, text=text), "backward", given, readable, gradients)))
    return tuple(found[f"d{name}"].astype(array.dtype) if f"d{name}" in found else jnp.zeros_like(array)
                 for name, array in zip(problem.names, arrays))


_compiled = jax.jit(_differentiable, static_argnums=0)


def _computed(problem: _Problem, which: str, given: dict[str, Any], readable: dict[str, Any], results: dict[str, _Result]) -> Arrays:
    """Computes results, given as {name: (tensor, shape, type)}, from arrays by name. Their derivatives, if they are asked
    for, are computed by JAX's operations."""
    if not results:
        return ()
    compute = {"forward": composition.forward, "backward": composition.backward}[which]

    def defined(*arrays: Any) -> Arrays:
        return compute(problem.norm, dict(zip(given, arrays)), dict(problem.numbers), results)

    def computed(*arrays: Any) -> Arrays:
        return _by_kernel(problem, which, dict(zip(given, arrays)), readable, results)

    made: Arrays = calls.with_derivatives(computed, defined)(*given.values())
    return made


def _by_kernel(problem: _Problem, which: str, given: dict[str, Any], readable: dict[str, Any], results: dict[str, _Result]) -> Arrays:
    first = given[problem.first]
    if first.size == 0:
        zeros = [jnp.zeros(shape, dtype) for _, shape, dtype in results.values()]
        made: Iterable[Any] = calls._alike([*given.values(), *zeros])[len(given):]
    else:
        made = _launched(problem, which, given, readable, results)
    of_result = {f"d{name}": name for name in given} if which == "backward" else {}
    found = []
    for array, (name, (_, shape, _)) in zip(made, results.items()):
        array, like = array.reshape(shape), None
        if name in of_result:
            like = given[of_result[name]]
            array = calls._summed(array, like)
        elif shape == first.shape:
            like = first
        found.append(calls._sharded(array, calls._sharding(like)))
    return tuple(found)


def _launched(problem: _Problem, which: str, given: dict[str, Any], readable: dict[str, Any], results: dict[str, _Result]) -> Arrays:
    """Does the same as _by_kernel(), in the shapes that kernels take."""
    like = given[problem.first]
    if not isinstance(like.shape[-1], int):
        raise InvalidArgument(f"{problem.first}: its shape is {like.shape}; the last dimension must be a number, for which a kernel is made")
    has_slices = problem.norm._has_slices
    slices = like.shape[0] if has_slices else 0
    rows = math.prod(like.shape[1 if has_slices else 0:-1])

    def flat(tensor: Any, shape: Shape) -> Shape:
        """Returns the shape in which a kernel takes a tensor: [S,M,N], [S,M], [M,N] and so on."""
        sizes = {"S": slices, "M": rows, "N": shape[-1] if shape else 0}
        return tuple(sizes[axis] for axis in tensor.axes.split(",") if axis)

    order = [problem.first, *(name for name in given if name != problem.first)]
    operands = [calls._gathered(given[name]).reshape(flat(readable[name], given[name].shape)) for name in order]
    types = {**{name: given[name].dtype for name in order}, **{name: dtype for name, (_, _, dtype) in results.items()}}
    words = [problem.text, f"pass={which} cols={like.shape[-1]}", *(f"{name}={DTYPES[dtype.name]}" for name, dtype in types.items()),
             f"out={','.join(results)}"]
    words += ["save=none"] if which == "backward" else []
    words += ["slices=any"] if has_slices else []
    spec = " ".join(words + [f"{name}={value!r}" for name, value in problem.numbers])
    call = _Call(spec, ",".join(map(str, formulas._places(spec, (*order, *results)))), slices,
                 tuple("M" in readable[name].axes for name in order), tuple("M" in tensor.axes for tensor, _, _ in results.values()),
                 tuple((flat(tensor, shape), dtype) for tensor, shape, dtype in results.values()))
    return _called(call, *calls._alike(operands))


@dataclasses.dataclass(frozen=True)
class _Call:
    spec: str
    tensors: str
    slices: int
    with_rows: tuple[bool, ...]  # for each operand
    results_with_rows: tuple[bool, ...]
    results: tuple[tuple[Shape, Any], ...]  # shapes and types


def _called(call: _Call, *operands: Any) -> Arrays:
    """Calls the kernel. Under vmap, the elements become further rows of a single call if they share everything that has
    no rows; otherwise there is one call for each."""
    run = jax.custom_batching.custom_vmap(functools.partial(
        calls.call_handler, "formula", call.results, slices=call.slices, spec=call.spec, tensors=call.tensors))

    @run.def_vmap
    def of_batch(size: int, is_batched: Any, *operands: Any) -> Any:
        are_rows = call.slices == 0 and all(call.results_with_rows) and all(map(operator.ge, call.with_rows, is_batched))
        whole = [each if batched or (are_rows and not rows) else jnp.broadcast_to(each, (size, *each.shape))
                 for each, batched, rows in zip(operands, is_batched, call.with_rows)]
        if not are_rows:
            found = jax.lax.map(lambda given: _called(call, *given), tuple(whole))
            return found, (True,) * len(found)
        of_all = dataclasses.replace(call, results=tuple(((size * shape[0], *shape[1:]), dtype) for shape, dtype in call.results))
        made = _called(of_all, *(each.reshape(size * each.shape[1], *each.shape[2:]) if rows else each
                                 for each, rows in zip(whole, call.with_rows)))
        return tuple(each.reshape(size, *shape) for each, (shape, _) in zip(made, call.results)), (True,) * len(made)

    made: Arrays = run(*operands)
    return made
