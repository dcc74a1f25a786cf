# SPDX-License-Identifier: Apache-2.0
"""normjit.h for Python: its structs and functions, and its errors as exceptions."""
from __future__ import annotations

import atexit
import ctypes
import functools
import math
import os
import sys

TYPE_CHECKING = False  # like typing.TYPE_CHECKING, but importing typing takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# The libraries are next to the sources, or in another folder of the package, as after `pip install -e`.
_folders = [os.path.dirname(os.path.abspath(__file__)), *sys.modules["normjit"].__path__]
FOLDER = next((each for each in _folders if os.path.exists(os.path.join(each, "libnormjit.so"))), _folders[0])
DTYPES = ("f32", "bf16", "f16", "f64", "e4m3", "e5m2", "e8m0", "i8")
NORM_DTYPES = DTYPES[:4]  # those of layernorm and rmsnorm; the others are for matrices of formulas
NORMS = ("layernorm", "rmsnorm")
ROUNDINGS = ("none", "llama")
ROOM_FOR_TENSORS = 16
WARNING_BYTES = 4096
NO_DTYPE = -1
DERIVED, ZERO = 0, 1  # values of normjit_gradient


class Error(RuntimeError):
    """An error of normjit, with the reason."""


class InvalidArgument(Error, ValueError):
    """The input is wrong."""


class Unavailable(Error):
    """This machine or installation cannot do it."""


class Capturing(Error):
    """A graph is being captured, during which no kernel can be made."""


ERRORS = {1: InvalidArgument, 2: Unavailable, 5: Capturing}


class _Sized(ctypes.Structure):
    """A struct that starts with its size. Fields that are not given are zero, and so is what lies beyond the size."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=ctypes.sizeof(self), **fields)


class Spec(_Sized):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("norm", ctypes.c_int32),
        ("source", ctypes.c_int32),
        ("stats", ctypes.c_int32),
        ("rows", ctypes.c_int64),
        ("cols", ctypes.c_int64),
        ("eps", ctypes.c_double),
        ("gamma_offset", ctypes.c_double),
        ("dtypes", ctypes.c_int32 * ROOM_FOR_TENSORS),
        ("accumulate", ctypes.c_uint32),
        ("pass", ctypes.c_int32),
        ("invariant", ctypes.c_uint32),
        ("rounding", ctypes.c_int32),
        ("slices", ctypes.c_int64),
        ("per_slice", ctypes.c_uint32),
        ("text", ctypes.c_char_p),
    ]


class _Hook(ctypes.Structure):
    """A function of the caller and its first argument, for a parallel_for or a log. Python itself provides neither."""

    _fields_ = [("run", ctypes.c_void_p), ("self", ctypes.c_void_p)]


class _Allocator(ctypes.Structure):
    _fields_ = [("allocate", ctypes.c_void_p), ("release", ctypes.c_void_p), ("self", ctypes.c_void_p)]


class EngineOptions(_Sized):
    """The first options, up to the last one that Python gives."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("device", ctypes.c_char_p),
        ("threads", ctypes.c_int32),
        ("parallel_for", _Hook),
        ("allocator", _Allocator),
        ("log", _Hook),
    ]


ON_MISS_ERROR = 2


class PrepareOptions(_Sized):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("on_miss", ctypes.c_int32),
        ("schedule", ctypes.c_char_p),
        ("stream", ctypes.c_void_p),
        ("expected_rows", ctypes.c_int64),
        ("expected_slices", ctypes.c_int64),
    ]


class Argument(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("cols", ctypes.c_int64),
        ("row_stride", ctypes.c_int64),
        ("dtype", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


class Arguments(_Sized):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("rows", ctypes.c_int64),
        ("tensors", Argument * ROOM_FOR_TENSORS),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_int64),
        ("stream", ctypes.c_void_p),
        ("dlpack_tensors", ctypes.c_uint32),
        ("slices", ctypes.c_int64),
        ("slice_strides", ctypes.c_int64 * ROOM_FOR_TENSORS),
    ]


def check(status: int) -> None:
    """Raises the exception for a normjit_status."""
    if status:
        raise ERRORS.get(status, Error)(library.normjit_last_error().decode(errors="replace"))


def encoded(name: str, text: object) -> bytes:
    """Returns a text as bytes for the library and the program, in which a NUL ends a text. Raises InvalidArgument for a
    text that contains a NUL or cannot be encoded."""
    if not isinstance(text, str):
        raise InvalidArgument(f"{name}: is {type(text).__name__}; must be a str")
    try:
        code = text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise InvalidArgument(f"{name}: {text!r}; must be Unicode") from None
    if b"\0" in code:
        raise InvalidArgument(f"{name}: {text!r}; must not contain a NUL")
    return code


def counted(number: int, noun: str) -> str:
    """Returns "1 row" or "2 rows", for the noun "row"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def check_finite(name: str, value: Any, least: float | None = None) -> None:
    """Raises InvalidArgument unless the value is a finite number that is at least `least`."""
    if isinstance(value, int) and abs(value) > sys.float_info.max:  # such an int is too long for a message
        value = math.inf if value > 0 else -math.inf
    try:
        fits = -math.inf < value < math.inf and (least is None or value >= least)
    except (TypeError, ValueError, RuntimeError):  # arrays raise the latter two
        fits = False
    if not fits:
        raise InvalidArgument(f"{name}: {value!r}; must be a finite number" + ("" if least is None else f" and at least {least}"))


def tell_warnings() -> None:
    """Passes the warnings of this package's engines since the last call to the logger "normjit"."""
    buffer = ctypes.create_string_buffer(WARNING_BYTES)
    while library.normjit_python_take_warning(buffer, WARNING_BYTES):
        from normjit.log import logger

        logger.warning("%s", buffer.value.decode(errors="replace"))


class _Handle:
    """An object of the library, which is destroyed together with this one."""

    destroy: str

    def __init__(self) -> None:
        self.pointer = ctypes.c_void_p()

    def __del__(self) -> None:
        if self.pointer and library is not None:  # library is None while the interpreter is ending
            getattr(library, self.destroy)(self.pointer)

    def __reduce__(self) -> Any:
        """Refuses copies, which would be destroyed a second time."""
        raise TypeError(f"normjit: {type(self).__name__}: can be neither copied nor pickled")


class Engine(_Handle):
    destroy = "normjit_engine_destroy"

    def __init__(self, device: str) -> None:
        super().__init__()
        options = EngineOptions(device=device.encode(), log=LOG)
        check(library.normjit_engine_create(ctypes.byref(options), ctypes.byref(self.pointer)))
        tell_warnings()


class Kernel(_Handle):
    destroy = "normjit_kernel_destroy"

    def __init__(self, engine: Engine, spec: Spec, stream: int | None, rows: int, slices: int = 1) -> None:
        """Makes a kernel that takes any number of rows and slices where the spec leaves them open, and is fastest for
        about these numbers. If none can be made because a graph is being captured, another kernel of the spec stands
        in."""
        super().__init__()
        options = PrepareOptions(stream=stream, expected_rows=rows, expected_slices=max(slices, 0))
        self.stands_in = False

        def prepare() -> int:
            status: int = library.normjit_prepare(engine.pointer, ctypes.byref(spec), ctypes.byref(options), ctypes.byref(self.pointer))
            return status

        try:
            check(prepare())
        except Capturing:
            options.on_miss, self.stands_in = ON_MISS_ERROR, True
            if prepare() != 0:
                raise
        tell_warnings()

    def workspace(self, rows: int, slices: int) -> int:
        """Returns the bytes of workspace with which the kernel is fastest. Rows and slices are as in Arguments."""
        preferred = ctypes.c_int64()
        check(library.normjit_kernel_workspace_bytes(self.pointer, rows, slices, None, ctypes.byref(preferred)))
        return preferred.value


class _StandsIn(Exception):
    """Raised to return a kernel that a cache must not keep."""


def keeps(make: Callable[..., Kernel]) -> Callable[..., Kernel]:
    """Returns a function that keeps the kernels that `make` returns, except those that stand in for others."""

    @functools.lru_cache(maxsize=512)
    def kept(*key: Any) -> Kernel:
        kernel = make(*key)
        if kernel.stands_in:
            raise _StandsIn(kernel)
        return kernel

    def kernel_for(*key: Any) -> Kernel:
        try:
            kernel: Kernel = kept(*key)
        except _StandsIn as found:
            kernel = found.args[0]
        return kernel

    return kernel_for


class Artifact(_Handle):
    destroy = "normjit_artifact_destroy"

    def __init__(self, target: str, spec: Spec, schedule: str | None) -> None:
        super().__init__()
        check(library.normjit_compile(encoded("target", target), ctypes.byref(spec),
                                      None if schedule is None else encoded("schedule", schedule),
                                      ctypes.byref(self.pointer)))

    def bytes(self) -> bytes:
        size = ctypes.c_size_t()
        check(library.normjit_artifact_serialise(self.pointer, None, 0, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        check(library.normjit_artifact_serialise(self.pointer, buffer, size, None))
        return buffer.raw


@functools.lru_cache(maxsize=None)
def engine(device: str) -> Engine:
    """Returns the engine of "cpu" or "cuda:0", which the first call makes."""
    if device.startswith("cuda"):
        load_nvrtc()
    return Engine(device)


def parse_spec(text: str) -> Spec:
    spec, code = Spec(), encoded("spec", text)
    check(library.normjit_spec_parse(code, ctypes.byref(spec)))
    if spec.text is not None:
        spec.text = code  # keeps the bytes, which the library points to
    return spec


def text_of(function: Any, *arguments: Any) -> str:
    """Returns the text that a function of the library writes to a buffer."""
    size = ctypes.c_size_t()
    check(function(*arguments, None, 0, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    check(function(*arguments, buffer, size, None))
    return buffer.value.decode(errors="surrogateescape")


def gradient_of(text: str, name: str) -> int:
    """Returns the kind of gradient that an input of a formula has, a normjit_gradient."""
    kind = ctypes.c_int32()
    check(library.normjit_formula_gradient(encoded("spec", text), encoded("name", name), ctypes.byref(kind)))
    return kind.value


def load_nvrtc() -> ctypes.CDLL | None:
    """Loads the NVRTC of this interpreter's packages, so that the library finds it by its name. An NVRTC that is
    already loaded takes precedence."""
    import glob
    import importlib.util

    for package in ("nvidia.cu13", "nvidia.cuda_nvrtc"):
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in (found and found.submodule_search_locations) or ():
            for path in sorted(glob.glob(os.path.join(glob.escape(folder), "lib", "libnvrtc.so.*"))):
                try:
                    return ctypes.CDLL(path)
                except OSError:
                    continue  # it is for another machine, or broken; the library searches elsewhere
    return None


def load(name: str) -> ctypes.CDLL:
    """Loads a library of this package."""
    path = os.path.join(FOLDER, name)
    if not os.path.exists(path):
        raise ImportError(
            f"normjit is not built: {path} is missing. Install it with `pip install .`, or build the targets "
            "normjit_torch and normjit_jax and run with PYTHONPATH=build/python"
        )
    return ctypes.CDLL(path)


def require(package: str, oldest: str, by: str, project: "str | None" = None) -> None:
    """Raises a ModuleNotFoundError that says what to install if `package` is missing. `by` is the module that needs it,
    and `project` is what pip calls the package."""
    import importlib.util

    if importlib.util.find_spec(package) is None:
        needed = f"{project or package}>={oldest}"
        raise ModuleNotFoundError(f"{by} needs {needed}: pip install '{needed}'", name=package)


def name_packs(folder: str) -> None:
    """Makes the library search a folder for packs of compiled kernels, unless the user has named some."""
    if "NORMJIT_CACHE_PACKS" not in os.environ and os.path.isdir(folder):
        packs = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".pack"))
        os.environ["NORMJIT_CACHE_PACKS"] = ":".join(packs)


name_packs(os.path.join(os.path.dirname(FOLDER), "normjit_kernels"))  # made by tools/kernels_wheel.py
library = load("libnormjit.so")
library.normjit_last_error.restype = ctypes.c_char_p
library.normjit_tensor_name.restype = ctypes.c_char_p
TENSORS = tuple(name.decode() for name in map(library.normjit_tensor_name, range(ROOM_FOR_TENSORS)) if name)
for _name in ("engine", "kernel", "artifact"):
    getattr(library, f"normjit_{_name}_destroy").argtypes = [ctypes.c_void_p]
    getattr(library, f"normjit_{_name}_destroy").restype = None
library.normjit_python_take_warning.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
LOG = _Hook(ctypes.cast(library.normjit_python_log, ctypes.c_void_p))
atexit.register(tell_warnings)  # JAX's engines warn while XLA runs
library.normjit_kernel_workspace_bytes.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p,
                                                   ctypes.c_void_p]
_number = library.normjit_version()
VERSION = f"{_number // 10000}.{_number // 100 % 100}.{_number % 100}"  # the version of the loaded library
