# SPDX-License-Identifier: Apache-2.0
"""Norms that are given as formulas, on arrays of NumPy, CuPy, PyTorch and anything else with DLPack."""
from __future__ import annotations

import collections
import ctypes
import functools
import keyword
import math
import re

from normjit import _graphs, _library, _operand, arrays
from normjit._library import InvalidArgument, library

TYPE_CHECKING = False  # like typing.TYPE_CHECKING, but importing typing takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Optional

    Array = Any  # an array of any library with __dlpack__()
    Out = Optional[Mapping[str, Array]]
    _Tensors = dict[str, Any]  # a _Tensor for each name
    _Operands = dict[str, Any]  # an _operand.Operand for each name

# Names of parameters of a call, both here and in normjit.jax.
_ARGUMENTS = ("self", "outputs", "out", "stream", "invariant", "accumulate", "dtypes")

NO_MATRIX = "no output depends on a matrix"  # part of the library's message

# shared: an [M,N] tensor that all slices share; run: "R" of [N/R] or "128" of [M,N/128], else ""
_Tensor = collections.namedtuple("_Tensor", ("name", "axes", "is_optional", "is_shared", "run"))

# A launch that was made: the kernel, its operands by the numbers of their tensors, and a named tuple of results.
_Call = collections.namedtuple("_Call", ("kernel", "operands", "results"))


class Formula:
    """A norm as a formula, and its gradient, which normjit derives.

        gated = normjit.formula('''norm gated_rmsnorm(x[M,N], z[M,N], gamma[N]) -> y[M,N], rstd?[M]
                                       rstd = rsqrt(row_mean(x * x) + eps)
                                       y    = x * rstd * gamma * silu(z)''')
        y, rstd = gated(x=x, z=z, gamma=gamma, eps=1e-6, outputs=("y", "rstd"))
        dx, dz, dgamma = gated.backward(x=x, z=z, gamma=gamma, dy=dy, rstd=rstd, eps=1e-6)

    text     the formula in one line
    name     the norm's name
    inputs   the names of the inputs, and of those that may be missing in `optional`
    outputs  the names of the outputs; those in `optional` are computed if outputs= names them
    numbers  the names of the numbers, such as eps, and the R of [N/R]"""

    def __init__(self, text: str) -> None:
        code = _library.encoded("formula", text)
        self.text = _library.text_of(library.normjit_formula_line, code)
        header = self.text.partition("{")[0]
        parts = re.fullmatch(r"norm (\w+)\((.*)\) -> (.*) ", header)
        assert parts is not None, header
        given, made = parts[2], parts[3]
        self.name: str = parts[1]
        self._has_slices = "[S" in header
        self._inputs, self._outputs = self._tensors(given), self._tensors(made)
        self.inputs, self.outputs = tuple(self._inputs), tuple(self._outputs)
        self.optional = tuple(t.name for t in (*self._inputs.values(), *self._outputs.values()) if t.is_optional)
        self.numbers = tuple(filter(None, _library.text_of(library.normjit_formula_numbers, code).split(",")))
        for name in (*self.inputs, *self.outputs, *self.numbers):
            if name in _ARGUMENTS:
                raise InvalidArgument(f"formula: '{name}' is an argument of each call; a tensor or number needs another name")

    def _tensors(self, text: str) -> _Tensors:
        """Returns the tensors of "x[M,N], gamma?[N]" by name."""
        found = re.findall(r"(\w+)(\??)\[([SMN,]*)/?(\w*)\]", text)
        return {name: _Tensor(name, axes, bool(optional), self._has_slices and axes == "M,N", run)
                for name, optional, axes, run in found}

    def axes(self, name: str) -> str:
        """Returns the axes of an input or output: "M,N", "M", "N", "", or these with S before them; [N/R] counts as
        "N", and [M,N/G] as "M,N"."""
        axes: str = (self._inputs.get(name) or self._outputs[name]).axes
        return axes

    def run(self, name: str) -> str:
        """Returns the number of columns that share an element: "R" for [N/R], "128" for [M,N/128], otherwise ""."""
        tensor = self._inputs.get(name) or self._outputs.get(name)
        return tensor.run if tensor else ""

    def with_optional(self, outputs: Iterable[str]) -> str:
        """Returns the text in which these outputs are optional, so that their gradients need not be given."""
        given, arrow, rest = self.text.partition(" -> ")
        for name in outputs:
            rest = re.sub(rf"\b{name}\[", f"{name}?[", rest)
        return given + arrow + rest

    def __repr__(self) -> str:
        return f"normjit.formula({self.text!r})"

    def __reduce__(self) -> Any:
        return formula, (self.text,)

    def __deepcopy__(self, memo: Any) -> Formula:
        return self

    def __call__(self, *, outputs: Any = None, out: Out = None, stream: Any = None, invariant: bool = False,
                 **given: Any) -> Any:
        """Returns the outputs, as a named tuple. If Python does not allow a name for a field, such as class or _y, the
        field is named by its position, _0.

        **given    the inputs by name: arrays of [..., N] for [M,N], of that shape without the last dimension for [M], of
                   [N], and of [N/R]; and the numbers that the formula names, such as eps. R follows from the arrays.
                   An optional input may be None or left out
        outputs    which outputs to compute; None: those that are not optional, and those of `out`
        out        a mapping of outputs' names to arrays to write to. Other arrays are made
        stream     on a GPU, as in normjit.layer_norm()
        invariant  a row has the same bits in every batch; slower for few rows

        Raises normjit.InvalidArgument, a ValueError, for arguments that do not fit. Thread safe."""
        if _graphs.is_traced():
            return _graphs.outside(_operand.NEEDS_DATA, self, outputs=outputs, out=out, stream=stream, invariant=invariant, **given)
        return self._forward(given, outputs, out, stream, invariant).results

    def _forward(self, given: dict[str, Any], outputs: Any, out: Out, stream: Any, invariant: bool) -> _Call:
        def usual(_: Any, __: Any) -> list[str]:
            return [name for name, tensor in self._outputs.items() if not tensor.is_optional]

        return self._compute("forward", given, self._inputs, self._outputs, usual, outputs, out, stream, invariant, None)

    def backward(self, *, accumulate: Any = None, outputs: Any = None, out: Out = None, stream: Any = None,
                 invariant: bool = False, **given: Any) -> Any:
        """Returns the gradients of the inputs, as a named tuple: dx for x.

        **given    as in a call, and the gradients of the outputs by name: dy for y. Values of the forward pass that are
                   given by their name, such as rstd, are read instead of computed again
        accumulate which gradients of [N] to add to what their arrays in `out` hold, with one rounding
        outputs    which gradients to compute; None: those of the matrices and columns that are not 0 everywhere

        All else is as in a call."""
        if _graphs.is_traced():
            return _graphs.outside(_operand.NEEDS_DATA, Formula.backward, self, accumulate=accumulate, outputs=outputs, out=out,
                                   stream=stream, invariant=invariant, **given)
        return self._backward(given, outputs, out, stream, invariant, accumulate).results

    def _backward(self, given: dict[str, Any], outputs: Any, out: Out, stream: Any, invariant: bool,
                  accumulate: Any) -> _Call:
        gradients = {f"d{t.name}": t._replace(name=f"d{t.name}") for t in self._inputs.values() if not t.is_shared}
        self.check_gradient()
        above = {f"d{t.name}": t._replace(name=f"d{t.name}") for t in self._outputs.values() if not t.run}
        saved = {t.name: t._replace(is_optional=True) for t in self._outputs.values() if not t.run}

        def usual(read: Iterable[str], numbers: Mapping[str, float]) -> list[str]:
            zeros = self.without_gradient(read, numbers)
            return [f"d{name}" for name, t in self._inputs.items() if name in read and f"d{name}" in gradients
                    and name not in zeros and t.axes not in ("M", "S,M", "")]

        return self._compute("backward", given, {**self._inputs, **above, **saved}, gradients, usual, outputs, out,
                             stream, invariant, accumulate)

    def check_gradient(self) -> None:
        """Raises InvalidArgument for a formula without a backward pass."""
        for tensor in self._outputs.values():
            if tensor.run and not tensor.is_optional:
                raise InvalidArgument(f"{tensor.name}: an output [{tensor.axes}/{tensor.run}] has no gradient, so that "
                                      f"{self.name} has no backward pass")

    def without_gradient(self, given: Iterable[str], numbers: Mapping[str, float]) -> Mapping[str, bool]:
        """Returns a dict of the inputs whose gradient is 0, which the library does not compute: True for inputs that
        cancel, such as w in x * w / w, and False for inputs from which no output is computed. `given` are the names
        of the tensors that a backward pass reads."""
        return _without_gradient(self, frozenset(given), tuple(numbers.items()))

    def reads_matrix(self, given: Iterable[str], numbers: Mapping[str, float], gradients: Iterable[str]) -> bool:
        """True if computing these gradients reads a matrix, as every kernel must. `given` are the names of the tensors
        that a backward pass may read."""
        return _reads_matrix(self, frozenset(given), tuple(numbers.items()), tuple(gradients))

    def _compute(self, which: str, given: dict[str, Any], readable: _Tensors, writable: _Tensors,
                 usual: Callable[[Iterable[str], Mapping[str, float]], list[str]], outputs: Any, out: Out, stream: Any,
                 invariant: bool, accumulate: Any) -> _Call:
        invariant = arrays.boolean("invariant", invariant)
        out = arrays.mapping_of(out)
        given = {name: value for name, value in given.items() if value is not None}
        self.check_names(given, readable)
        numbers = {name: arrays.number(name, value) for name, value in given.items() if name not in readable}
        read = {name: value for name, value in given.items() if name in readable}
        default = usual(read, numbers) if outputs is None else []
        if outputs is None and not default and not out:
            why = "all outputs are optional" if which == "forward" else "the gradients of all matrices and columns are 0"
            raise InvalidArgument(f"outputs: is missing; {why}, so nothing is computed by default")
        wanted = arrays.wanted_of(tuple(writable), default, outputs, out)
        columns = [name for name in wanted if writable[name].axes in ("N", "S,N") and not writable[name].run]
        accumulated = arrays.accumulated_of(accumulate, columns, out)
        matrix = self.first_matrix(read)
        if matrix is None:
            raise InvalidArgument(f"{self.name}: no input is a matrix, whose shape decides")
        first = read[matrix]
        on_gpu = _operand.device_type(matrix, first) != _operand.CPU if hasattr(first, "__dlpack_device__") else False
        if stream is not None and not on_gpu:
            raise InvalidArgument(f"stream: {matrix} is on the CPU, which has none")
        handle = (_operand.current_stream(first) if stream is None else _operand.stream_handle(stream)) if on_gpu else None
        operands = {name: _operand.Operand(name, array, handle) for name, array in read.items()}
        like = operands[matrix]
        if not like.shape:
            raise InvalidArgument(f"{matrix}: has no dimensions; the last must be the normalised one")
        for name, operand in operands.items():
            _find_run(operand, readable[name], like, numbers)
            _check_shape(operand, readable[name], like, numbers)
        with _operand.on_stream(first, handle) if on_gpu else arrays._Nothing():
            for name in wanted:
                made = out.get(name)
                if made is None:
                    made = self._make(writable[name], operands, like, numbers)
                operands[name] = _operand.Operand(name, made, handle)
                _check_shape(operands[name], writable[name], like, numbers)
                if operands[name].read_only:
                    raise InvalidArgument(f"out: {name}: cannot be written to")
            has_rows = any("M" in writable[name].axes for name in wanted)
            kernel, numbered = self._kernel_of(which, operands, numbers, wanted, accumulated, like, handle,
                                               invariant and has_rows)
            arrays.launch(kernel, numbered, like.array, handle)
        for made in out.values():
            _operand.was_written(made)
        return _Call(kernel, numbered, _results(self.name, tuple(wanted))(*(operands[name].array for name in wanted)))

    def check_names(self, given: Iterable[str], readable: _Tensors) -> None:
        """Raises InvalidArgument unless the given names are those of numbers and of these tensors, and only optional
        tensors are missing."""
        for name in given:
            if name not in readable and name not in self.numbers:
                raise InvalidArgument(f"{name}: the formula has nothing of this name")
        for name, tensor in readable.items():
            if name not in given and not tensor.is_optional:
                raise InvalidArgument(f"{name}: is missing; the formula needs it")

    def first_matrix(self, given: Iterable[str]) -> str | None:
        """Returns the first matrix among these inputs, which determines shapes and the device; None if there is
        none."""
        return next((name for name, t in self._inputs.items()
                     if t.axes.endswith("M,N") and not t.is_shared and name in given), None)

    @staticmethod
    def _make(tensor: Any, operands: _Operands, like: Any, numbers: dict[str, float]) -> Any:
        """Makes an array for an output. A gradient has its input's type, or f32 if that has 8 bits."""
        of = operands.get(tensor.name[1:]) if tensor.name.startswith("d") else None
        shape = _shapes(tensor, like, numbers)[0]
        if tensor.axes in ("M", "S,M", "") or (tensor.run and "M" in tensor.axes):
            return _operand.empty(like.array, shape, "float64" if like.dtype == "f64" else "float32")
        of = of or like
        return _operand.empty(of.array, shape, "float32" if of.dtype in _operand.EIGHT_BITS else None)

    def _kernel_of(self, which: str, operands: _Operands, numbers: dict[str, float], wanted: list[str],
                   accumulated: tuple[str, ...], like: Any, stream: int | None,
                   invariant: bool) -> tuple[_library.Kernel, dict[int, Any]]:
        """Returns the kernel for these operands, and the operands by the numbers of its tensors."""
        types = " ".join(f"{name}={operand.dtype}" for name, operand in operands.items())
        saved = [name for name in operands if name in self._outputs and name not in wanted]
        words = [self.text, f"pass={which} cols={like.shape[-1]}", types, f"out={','.join(wanted)}"]
        if which == "backward":
            words.append(f"save={','.join(saved) or 'none'}")
        if accumulated:
            words.append(f"accumulate={','.join(accumulated)}")
        if invariant:
            words.append("invariant=1")
        if self._has_slices:
            words.append(f"slices={like.shape[0] or 'any'}")
        words += [f"{name}={float(value)!r}" for name, value in sorted(numbers.items())]
        text, rows = " ".join(words), math.prod(like.shape[1 if self._has_slices else 0:-1])
        kernel = _kernel(like.device, text, rows, stream)
        return kernel, dict(zip(_places(text, tuple(operands)), operands.values()))


def formula(text: str) -> Formula:
    """Returns the Formula for a text, or for the name of a norm in the library, such as "gated_rmsnorm". The language
    is described in normjit's compiler/FORMULAS.md. Raises normjit.InvalidArgument with the place of the mistake."""
    if not isinstance(text, str):  # some objects have no hash
        raise InvalidArgument(f"formula: is {type(text).__name__}; must be a str")
    return _made(text)


_made = functools.lru_cache(maxsize=None)(Formula)


@functools.lru_cache(maxsize=512)
def _without_gradient(norm: Formula, given: frozenset[str], numbers: tuple[tuple[str, float], ...]) -> dict[str, bool]:
    """Asks the library about each gradient, for rows of some length, because a gradient that is 0 is 0 for all
    lengths."""
    text, found = _backward_of_some_cols(norm, given, numbers), {}
    for name, tensor in norm._inputs.items():
        if name not in given or tensor.is_shared:
            continue
        try:
            kind = _library.gradient_of(text, name)
        except InvalidArgument:  # errors are raised where the gradients are computed
            continue
        if kind != _library.DERIVED:
            found[name] = kind == _library.ZERO
    return found


def _backward_of_some_cols(norm: Formula, given: frozenset[str], numbers: tuple[tuple[str, float], ...]) -> str:
    """Returns a spec of the backward pass that reads these tensors, for rows of some length."""
    runs = {t.run for t in norm._inputs.values() if t.run}
    values = {**{run: 3.0 for run in runs if not run.isdigit()}, **dict(numbers)}
    cols = 2 * 1009 * math.lcm(*(int(values.get(run, run)) for run in runs))
    saved = [name for name in norm.outputs if name in given]
    words = [norm.text, f"pass=backward cols={cols} save={','.join(saved) or 'none'}"]
    words += ["slices=2"] if norm._has_slices else []
    words += [f"{name}=f32" for name in sorted(given)] + [f"{name}={float(value)!r}" for name, value in values.items()]
    return " ".join(words)


@functools.lru_cache(maxsize=512)
def _reads_matrix(norm: Formula, given: frozenset[str], numbers: tuple[tuple[str, float], ...],
                  gradients: tuple[str, ...]) -> bool:
    try:
        _library.parse_spec(f"{_backward_of_some_cols(norm, given, numbers)} out={','.join(gradients)}")
    except InvalidArgument as error:  # other errors are raised where the gradients are computed
        return NO_MATRIX not in str(error)
    return True


@functools.lru_cache(maxsize=512)
def _results(name: str, outputs: tuple[str, ...]) -> Any:
    """Returns the class of named tuples. It belongs to no module; pickle makes it again."""
    def reduced(results: Any) -> Any:
        return _unpickled, (name, outputs, *results)

    name_of_class = f"{name}_" if keyword.iskeyword(name) else name
    made = collections.namedtuple(name_of_class, outputs, rename=True)  # type: ignore[misc]
    setattr(made, "__reduce__", reduced)
    return made


def _unpickled(name: str, outputs: tuple[str, ...], *arrays: Array) -> Any:
    return _results(name, outputs)(*arrays)


_spec = functools.lru_cache(maxsize=512)(_library.parse_spec)


@_library.keeps
def _kernel(device: str, text: str, rows: int, stream: int | None) -> _library.Kernel:
    return _library.Kernel(_library.engine(device), _spec(text), stream, rows)


@functools.lru_cache(maxsize=512)
def _places(text: str, names: tuple[str, ...]) -> tuple[int, ...]:
    """Returns the numbers that these tensors have in a spec."""
    numbers = [ctypes.c_int32() for _ in names]
    for name, number in zip(names, numbers):
        _library.check(library.normjit_spec_tensor(ctypes.byref(_spec(text)), name.encode(), ctypes.byref(number)))
    return tuple(number.value for number in numbers)


def _find_run(operand: Any, tensor: Any, like: Any, numbers: dict[str, float]) -> None:
    """Adds R of [N/R] to the numbers if it was not given. The shape of the array decides it."""
    if not tensor.run or tensor.run.isdigit():
        return
    cols, size = like.shape[-1], operand.shape[-1] if operand.shape else 0
    if tensor.run not in numbers and (size == 0 or cols % size):
        raise InvalidArgument(f"{operand.name}: its shape is {operand.shape}; the last dimension of [{tensor.axes}/{tensor.run}] "
                              f"must divide {cols}, the columns of {like.name}")
    check_run(tensor.run, numbers.setdefault(tensor.run, cols // max(size, 1)), cols, like.name)


def check_run(name: str, run: float, cols: int, like: str) -> None:
    """Raises InvalidArgument unless the first matrix has a whole number of runs of columns."""
    if run < 1 or run % 1 != 0 or cols % int(run):
        raise InvalidArgument(f"{name}: {run:g}; must be a whole number that divides {cols}, the columns of {like}")


def _shapes(tensor: Any, like: Any, numbers: dict[str, float]) -> tuple[tuple[int, ...], ...]:
    """Returns the shapes that a tensor may have, given the first matrix."""
    shape = like.shape
    if tensor.run:
        run = int(tensor.run) if tensor.run.isdigit() else int(numbers.get(tensor.run, 0))
        shape = (*shape[:-1], shape[-1] // run if run > 0 else 0)
    if tensor.is_shared:
        return (shape[1:],)
    if tensor.axes.endswith("M,N"):
        return (shape,)
    if tensor.axes.endswith("M"):
        return (shape[:-1], (*shape[:-1], 1))
    if tensor.axes == "S,N":
        return ((shape[0], shape[-1]),)
    return (shape[-1:],) if tensor.axes == "N" else ((), (1,))


def _check_shape(operand: Any, tensor: Any, like: Any, numbers: dict[str, float]) -> None:
    shapes = _shapes(tensor, like, numbers)
    if operand.device != like.device:
        raise InvalidArgument(f"{operand.name}: is on {operand.device}; {like.name} is on {like.device}")
    if operand.shape not in shapes:
        raise InvalidArgument(f"{operand.name}: its shape is {operand.shape}; [{tensor.axes}{'/' * bool(tensor.run)}{tensor.run}] "
                              f"beside {like.name} is "
                              f"{' or '.join(str(each) for each in shapes)}")
