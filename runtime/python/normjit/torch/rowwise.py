# SPDX-License-Identifier: Apache-2.0
"""Makes formulas from row-wise functions in torch code: traces a function, and writes its graph as a formula."""
from __future__ import annotations

import collections
import functools
import inspect
import itertools
import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from normjit import _graphs
from normjit._library import InvalidArgument
from normjit.torch import composition, probes, rowwise_formula, sources
from normjit.torch import rowwise_halves as halves
from normjit.torch import rowwise_results as results
from normjit.torch.formula_checks import READ
from normjit.torch.formulas import call, formula
from normjit.torch.functional import ALL_TYPES, check_tensor, is_shape
from normjit.torch.rowwise_formula import Written
from normjit.torch.rowwise_writer import NOT_GIVEN
from normjit.torch.tracing import unseen
from normjit.torch.unrounded import Unrounded, UnroundedNumbers, in_double

TOLERANCE = 1e-6  # the largest relative error of values and gradients, in the 2-norm
SCALES = tuple(sign * size for size in (1.0, 0.1, 10.0, 100.0, 1000.0) for sign in (1, -1))  # factors of tried values
MANY_ROWS = 1 << 20
MOST_TRACES = 256  # the most traces that are kept of one function
IS_METHOD = ("normjit.torch.rowwise: the object of a method is not a constant for torch.compile; a graph can have functions of "
             "tensors and constants")
IS_OTHER = ("computes something else than was traced; code that asks for devices, modes or requires_grad has no place in a "
            "row-wise function")
IS_MADE = "normjit.torch.rowwise: the function is made in code that torch.compile traces; make it outside, once"
_lock = threading.Lock()  # torch traces in one thread at a time
_thread = threading.local()  # its attribute `traces` is true in a thread that is tracing a function
_numbers = itertools.count()
_functions: weakref.WeakValueDictionary[str, _Rowwise] = weakref.WeakValueDictionary()  # by key


def rowwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function with normjit's kernels for its forward and backward pass.

        @normjit.torch.rowwise
        def gated(x, z, weight):
            h = x.float()
            h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
            return (weight * h * torch.nn.functional.silu(z.float())).to(x.dtype)

    The first tensor of `function`, x, is [..., N]. Other tensors have the same shape, or are [N], [..., 1], or one
    number. Those with x's shape may have 8 bits, such as torch.int8; x.float() converts them. Results have x's shape, or are [..., 1] or [...]. The function may use

    - arithmetic, functions such as exp, silu and gelu, and losses such as huber_loss(x, z, reduction="none");
    - reductions of the last dimension, such as mean, var and amax;
    - choices by comparisons, such as torch.where((x > 0) & (z != 1), x, z);
    - torch's own norms of rows: layer_norm, rms_norm, normalize and softmax;
    - halves of rows, which torch.cat joins again, or their elements at even and odd places, which torch.stack joins, as
      in RoPE.

    It returns a tensor, or tensors and None in tuples, named tuples, lists and dicts of any depth. If it returns an
    argument, that argument is returned as it is, not copied.

    The function is traced once for each kind of arguments. Arguments that are not tensors become constants of the
    trace, and so does everything else that the code reads, such as global variables. Of an object, such as that of a
    method, the numbers and texts among the attributes that the function itself reads may change. All tensors must be
    arguments, and so must the number of rows if a result depends on it. Intermediate values are not rounded: in a
    16-bit type, results are nearer to double precision than the function's own. Their types are those that the function
    itself would return for these arguments without autocast. All else is as in formula(). A method is decorated in the
    body of its class; torch.compile leaves it out of its graphs, because an object is not a constant there. Raises
    normjit.InvalidArgument, which names the operation that is not row-wise, or that formulas do not have."""
    return _graphs.outside(IS_MADE, _Rowwise, function) if _graphs.is_traced() else _Rowwise(function)


class _Rowwise:
    """A function as a formula for each kind of arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise InvalidArgument(f"rowwise: is {type(function).__name__}; must be a function")
        functools.update_wrapper(self, function)
        self.__wrapped__ = function
        self._key = str(next(_numbers))  # a str, because not every version of torch.compile takes a number or an
                                         # object for a constant
        _functions[self._key] = self
        self._traces: dict[Any, Written] = {}
        self._names = sources.attributes_read(function)
        if isinstance(function, torch.nn.Module):
            raise InvalidArgument(f"rowwise: {type(function).__name__} is a module; give a function that takes its weights as "
                                  "arguments, or decorate a method of its class")
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError:  # torch.sigmoid, for example
            raise InvalidArgument(f"rowwise: {_shown(function)} does not tell its parameters; give a Python function that "
                                  "calls it") from None
        self._parameters = [each.name for each in parameters]
        for each in parameters:
            if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                raise InvalidArgument(f"rowwise: {_shown(function)} has a parameter {each}; each must have a name of its own")
        self._positional = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
        self._defaults = {each.name: each.default for each in parameters if each.default is not each.empty}

    def __repr__(self) -> str:
        return f"normjit.torch.rowwise({_shown(self.__wrapped__)})"

    def __reduce__(self) -> Any:
        function = self.__wrapped__
        named: Any = sys.modules.get(getattr(function, "__module__", ""))
        path = getattr(function, "__qualname__", "")  # objects that can be called, such as partial(), lack it
        for name in path.split("."):
            named = getattr(named, name, None)
        if named is self:  # this is a decorated function, which is pickled like any function
            return path
        return rowwise, (function,)

    def __deepcopy__(self, memo: Any) -> _Rowwise:
        return self

    def __set_name__(self, owner: type, name: str) -> None:
        """Turns a function into a method in the body of a class. All other functions lack __get__(), because Dynamo of
        torch 2.10 and 2.11 would call it for attributes of objects as well."""
        setattr(owner, name, _Method(self.__wrapped__))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if not torch.compiler.is_compiling() and hasattr(_thread, "traces"):
            return self.__wrapped__(*arguments, **named)  # this is a part of another row-wise function
        bound = self._bound(arguments, named)
        given = {name: value for name, value in bound.items() if isinstance(value, torch.Tensor)}
        if not given:
            types = ", ".join(f"{name} is {type(value).__name__}" for name, value in bound.items()) or "there are none"
            raise InvalidArgument(f"{_shown(self.__wrapped__)}: no argument is a tensor: {types}")
        kinds, cols = _kinds(given)
        others = tuple((name, _constant(value)) for name, value in bound.items() if name not in given)
        return _results(_plan(self._key, kinds, others, cols), list(given.values()), _by_kernels)

    def _bound(self, arguments: Any, named: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments by parameter name, in the order of the parameters."""
        positional = dict(zip(self._positional, arguments))
        bound = {**self._defaults, **positional, **named}
        fit = len(positional) == len(arguments) and not any([name in named for name in positional])
        if not fit or len(bound) != len(self._parameters) or not all([name in bound for name in self._parameters]):
            inspect.signature(self.__wrapped__).bind(*arguments, **named)  # this says what is wrong
        return {name: bound[name] for name in self._parameters}


class _Method(_Rowwise):
    """A row-wise function as an attribute of a class."""

    def __get__(self, instance: Any, kind: Any = None) -> Any:
        if instance is None:
            return self
        if _graphs.is_traced():
            return functools.partial(_graphs.outside, IS_METHOD, self, instance)
        return functools.partial(self, instance)


def _constant(value: Any) -> Any:
    """Returns the current value of a number, which torch.compile and make_fx() may have made a symbol."""
    is_number = isinstance(value, (torch.SymInt, torch.SymFloat)) or (
        isinstance(value, (int, float)) and torch.compiler.is_compiling())
    return torch.fx.experimental.symbolic_shapes.guard_scalar(value) if is_number else value


def _shown(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", repr(function))


def _results(plan: Written, tensors: Sequence[torch.Tensor], compute: Callable[..., Sequence[torch.Tensor]]) -> Any:
    """Returns a function's results for its tensors. `compute` computes the outputs of a formula from its inputs."""
    values = dict(zip(plan.tensors, tensors))
    values.update((kind.signs, kind.signs_like(tensors[0])) for kind in halves.KINDS if kind.signs in plan.inputs)
    if plan.outputs:
        made = compute(plan, {name: values[name] for name in plan.inputs})
        values.update((output.name, tensor.unsqueeze(-1) if output.is_column else tensor) for output, tensor in zip(plan.outputs, made))
    return results.arranged(plan.results, values)


def _by_kernels(plan: Written, given: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    made = call(plan.text, given, [output.dtype for output in plan.outputs])
    return [tensor.to(getattr(torch, output.dtype)) for output, tensor in zip(plan.outputs, made)]


def _by_torch(plan: Written, given: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    return composition.forward(plan.text, list(given), list(given.values()), {}, [output.name for output in plan.outputs])


@unseen
def _kinds(given: dict[str, torch.Tensor]) -> tuple[Any, int]:
    """Returns the kinds of tensors, and how many columns they have."""
    first_name, first = next(iter(given.items()))
    if first.dim() == 0:
        raise InvalidArgument(f"{first_name}: has no dimensions; the last must be that of a row")
    kinds = tuple((name, _axes(name, value, first_name, first), value.dtype, value.dim()) for name, value in given.items())
    return kinds, _constant(first.shape[-1])


def _axes(name: str, tensor: torch.Tensor, first_name: str, first: torch.Tensor) -> str:
    for each_name, each in ((first_name, first), (name, tensor)):
        if each.is_nested or each.layout is not torch.strided or each.device != first.device:  # a nested tensor has no
                                                                                               # shape
            check_tensor(each_name, each, first_name, first)
    for axes, shape in (("M,N", first.shape), ("", ()), ("", (1,)), ("N", first.shape[-1:]), ("M", (*first.shape[:-1], 1))):
        if is_shape(tensor, shape):
            return axes
    raise InvalidArgument(f"{name}: its shape is {tuple(tensor.shape)}; must be {tuple(first.shape)}, "
                          f"{(first.shape[-1],)}, {(*first.shape[:-1], 1)}, (1,) or ()")


def _plan(key: str, kinds: Any, others: Any, cols: int) -> Written:
    """Returns a function as a formula for arguments of these kinds."""
    owner = _functions[key]
    function, traces, names = owner.__wrapped__, owner._traces, owner._names
    try:
        hash(others)
    except TypeError as error:
        raise InvalidArgument(f"{_shown(function)}: {error}: arguments that are not tensors must be hashable constants") from None
    form = kinds, cols, *[sources.key_of(value, names) for _, value in others]
    found = traces.get(form)
    if found is None:
        with _lock:
            found = traces[form] = traces.get(form) or probes.alone(_trace, function, kinds, others, cols)
            if len(traces) > MOST_TRACES:
                del traces[next(iter(traces))]
    return found


_plan._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _shapes(dimensions: int, cols: int) -> list[dict[str, tuple[int, ...]]]:
    """Returns three sets of shapes, by axes: for few rows, for one row, and for many. Every dimension before the last
    differs from set to set in its size, and in its rank among the sizes, so that code that reads sizes computes
    something else for one of the sets."""
    rows = dimensions - 1
    side = int(MANY_ROWS ** (1 / max(rows, 1)))
    leading = [tuple(range(2, 2 + rows)), (1,) * rows, tuple(range(side + rows, side, -1))]
    return [{"M,N": (*each, cols), "N": (cols,), "M": (*each, 1)} for each in dict.fromkeys(leading)]


def _shape(shapes: Mapping[str, tuple[int, ...]], axes: str, dimensions: int) -> tuple[int, ...]:
    """Returns the shape of a tensor with these axes. A single number is a tensor of () or (1,)."""
    return shapes[axes] if axes else (1,) * dimensions


def _trace(function: Callable[..., Any], kinds: Any, others: Any, cols: int) -> Written:
    from torch._dynamo import config
    from torch.fx.experimental.proxy_tensor import make_fx

    _thread.traces = True  # this thread is new, and ends with this function
    for name, axes, dtype, _ in kinds:
        if dtype not in (READ if axes == "M,N" else ALL_TYPES):
            hint = f"; give {name}.to(x.dtype) for an x, and use {name} != 0 as the condition" if dtype == torch.bool else ""
            of_8_bits = ", ".join(str(each) for each in READ if each not in ALL_TYPES)
            raise InvalidArgument(f"{name}: its type is {dtype}; must be a floating-point type of {', '.join(map(str, ALL_TYPES))} "
                                  f"or, with the shape of {kinds[0][0]}, {of_8_bits}{hint}")
    signature = inspect.signature(function)

    def of_tensors(*tensors: torch.Tensor) -> Any:
        values = {**{name: tensor for (name, *_), tensor in zip(kinds, tensors)}, **dict(others)}
        bound = inspect.BoundArguments(signature, collections.OrderedDict(values))
        return function(*bound.args, **bound.kwargs)

    def written(shapes: Mapping[str, tuple[int, ...]]) -> Written:
        tensors = [torch.empty(_shape(shapes, axes, dim), dtype=dtype, device="meta") for _, axes, dtype, dim in kinds]
        order: Any = None

        def of_given(*tensors: torch.Tensor) -> list[Any]:
            nonlocal order
            with _Given():
                made, order = results.flat(of_tensors(*tensors))
            for each in made:
                if each is not None and not isinstance(each, torch.Tensor):
                    raise InvalidArgument(f"{_shown(function)}: returns {type(each).__name__}; must return tensors and None, in "
                                          "tuples, named tuples, lists and dicts of any depth")
            return made

        with config.patch(error_on_nested_fx_trace=False):  # functions that torch.compile returned are looked into
            graph = make_fx(of_given, decomposition_table=_decompositions())(*tensors)
        made = rowwise_formula.written(_shown(function), graph, _inputs(kinds), shapes)
        return made._replace(results=results.in_order(made.results, order))

    few, *more = _shapes(kinds[0][3], cols)
    traced = written(few)
    if any([written(shapes) != traced for shapes in more]):
        raise InvalidArgument(f"{_shown(function)}: computes something else for another number of rows; "
                              "a number that it computes with must be an argument")
    if traced.outputs:
        traced = traced._replace(text=formula(traced.text).text)
    _check(function, of_tensors, traced, kinds, few)
    return traced


@functools.lru_cache(maxsize=None)
def _decompositions() -> Any:
    """Returns torch's own definitions, in simpler operations, of operations that formulas do not have."""
    from torch._decomp import get_decompositions

    aten = torch.ops.aten
    return get_decompositions([aten.mse_loss, aten.binary_cross_entropy_with_logits, aten.softshrink, aten.norm])


class _Given(TorchDispatchMode):
    """Refuses operations that mix a trace's tensors, which have no data, with tensors that have data, that read numbers
    from a trace's tensors, or that draw random numbers."""

    def __torch_dispatch__(self, operator: Any, kinds: Any, arguments: Any = (), named: Any = None) -> Any:
        if torch.Tag.data_dependent_output in operator.tags or torch.Tag.dynamic_output_shape in operator.tags:
            raise InvalidArgument(f"rowwise: {operator}: the code reads values of a tensor, as `if` and item() do; it must "
                                  "compute the same for all values")
        if torch.Tag.nondeterministic_seeded in operator.tags:
            raise InvalidArgument(f"rowwise: {operator}: draws random numbers, as dropout does; draw them before the call, and "
                                  "give them as an argument")
        tensors = [each for each in pytree.tree_flatten((arguments, named))[0] if isinstance(each, torch.Tensor)]
        if any([each.is_meta for each in tensors]):
            for each in tensors:
                if not each.is_meta:
                    raise InvalidArgument(f"rowwise: {operator}: {NOT_GIVEN.format(tuple(each.shape))}")
        return operator(*arguments, **(named or {}))


def _inputs(kinds: Any) -> dict[str, str]:
    """Returns the axes of tensors by their names in the formula. A name is the parameter's name with a number, so that
    it is not the name of another tensor, a value or a gradient."""
    return {f"{rowwise_formula.letters(name)}_{i}": axes for i, (name, axes, *_) in enumerate(kinds)}


def _check(function: Callable[..., Any], of_tensors: Callable[..., Any], plan: Written, kinds: Any,
           shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuses a function that does not compute what was traced, for example because it looks at devices, and a function
    whose gradients are not those of its values, for example because of no_grad(). Compares the function with its
    formula on the first inputs that give only finite results."""
    generator = torch.Generator().manual_seed(0)
    for scales in _scales(len(kinds)):
        wide = [_tried(torch.rand(_shape(shapes, axes, dim), generator=generator, dtype=torch.float64) + 0.5, scale, dtype)
                for (_, axes, dtype, dim), scale in zip(kinds, scales)]
        leaves = [Unrounded(each, dtype).requires_grad_(each.requires_grad) for each, (_, _, dtype, _) in zip(wide, kinds)]
        with UnroundedNumbers():
            own_results = of_tensors(*leaves)
        both = own_results, _results(plan, wide, _by_torch)
        made, wanted = ([each for each in results.flat(given)[0] if each is not None] for given in both)
        if [getattr(each, "shape", None) for each in made] != [each.shape for each in wanted]:
            raise InvalidArgument(f"{_shown(function)}: {IS_OTHER}")
        above = [torch.randn(each.shape, generator=generator, dtype=torch.float64) for each in wanted]
        own = [in_double(each.detach()) for each in (*made, *_gradients(made, leaves, above))]
        derived = [each.detach() for each in (*wanted, *_gradients(wanted, wide, above))]
        if all([bool(each.isfinite().all()) for each in (*own, *derived)]):
            break
    else:
        raise InvalidArgument(f"{_shown(function)}: neither its values nor its gradients can be checked, since they are "
                              f"not finite for any numbers that were tried, of {min(SCALES):g} to {max(SCALES):g}")
    size = sum(float(each.norm()) for each in above)
    off = [float((one - other).norm()) > TOLERANCE * (float(other.norm()) + size) for one, other in zip(own, derived)]
    if any(off[: len(above)]):
        raise InvalidArgument(f"{_shown(function)}: {IS_OTHER}")
    for (name, *_), is_off in zip(kinds, off[len(above):]):
        if is_off:
            raise InvalidArgument(f"{_shown(function)}: its gradient of {name} is not the gradient of what it computes; "
                                  "detach(), no_grad() and autograd.Function have no place in a row-wise function")


def _tried(values: torch.Tensor, scale: float, dtype: torch.dtype) -> torch.Tensor:
    """Returns values of this scale that a tensor of this type may have."""
    if dtype == torch.int8:
        return (values * scale * 20).round().clamp(-128, 127)
    return (values * scale).requires_grad_()


def _scales(count: int) -> Iterator[Sequence[float]]:
    """Yields factors for tensors of numbers around 1: first the same factor for all tensors, then random ones."""
    yield from ((scale,) * count for scale in SCALES)
    choice = random.Random(0)
    yield from (choice.choices(SCALES, k=count) for _ in range(5 * len(SCALES) if count > 1 else 0))


def _gradients(results: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor],
               above: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns the gradients of the leaves, given those of the results; zeros where no backward pass can ever run."""
    pairs = [(y, Unrounded(dy, y.dtype) if isinstance(y, Unrounded) else dy) for y, dy in zip(results, above) if y.requires_grad]
    found: dict[int, Any] = {}
    if pairs and _has_backward():
        with_gradient, their_gradients = zip(*pairs)
        places = [i for i, leaf in enumerate(leaves) if leaf.requires_grad]
        found.update(zip(places, torch.autograd.grad(with_gradient, [leaves[i] for i in places], their_gradients, allow_unused=True)))
    return [torch.zeros_like(leaf) if found.get(i) is None else found[i] for i, leaf in enumerate(leaves)]


def _has_backward() -> bool:
    """False in a process that was forked after a backward pass, because torch refuses all others there."""
    leaf = torch.zeros((), requires_grad=True)
    try:
        torch.autograd.grad(leaf * 1, leaf)
    except RuntimeError:
        return False
    return True
