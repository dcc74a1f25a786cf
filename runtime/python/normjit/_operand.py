# SPDX-License-Identifier: Apache-2.0
"""Passes arrays of any library to normjit without a copy: NumPy's own, and anything with DLPack."""
import contextlib
import ctypes
import functools
import sys

from normjit._library import DTYPES, InvalidArgument

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
DEVICE_NAMES = {CPU: "cpu", CUDA: "cuda", CUDA_HOST: "cuda", CUDA_MANAGED: "cuda"}
INT, FLOAT, BFLOAT, FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT8_E8M0FNU = 0, 2, 4, 10, 12, 14  # values of DLDataTypeCode
DTYPE_CODES = {(FLOAT, 32): "f32", (BFLOAT, 16): "bf16", (FLOAT, 16): "f16", (FLOAT, 64): "f64",
               (FLOAT8_E4M3FN, 8): "e4m3", (FLOAT8_E5M2, 8): "e5m2", (FLOAT8_E8M0FNU, 8): "e8m0",
               (INT, 8): "i8"}
NUMPY_CODES = {"float32": (FLOAT, 32), "bfloat16": (BFLOAT, 16), "float16": (FLOAT, 16), "float64": (FLOAT, 64),
               "float8_e4m3fn": (FLOAT8_E4M3FN, 8), "float8_e5m2": (FLOAT8_E5M2, 8),
               "float8_e8m0fnu": (FLOAT8_E8M0FNU, 8), "int8": (INT, 8)}  # ml_dtypes has the floating-point types of 8 bits
EIGHT_BITS = {name for (_, bits), name in DTYPE_CODES.items() if bits == 8}
READ_ONLY = 1  # a value of DLPACK_FLAG_BITMASK


class DLTensor(ctypes.Structure):
    """https://dmlc.github.io/dlpack/latest/c_api.html"""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
_capsule_is = ctypes.pythonapi.PyCapsule_IsValid
_capsule_is.argtypes, _capsule_is.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int


def _loaded(module, name):
    """Returns what a module calls by this name; None if nobody has imported the module, or if another thread is
    importing it."""
    return getattr(sys.modules.get(module), name, None)


def _is_instance(array, module, name):
    kind = _loaded(module, name)
    return kind is not None and isinstance(array, kind)


@functools.lru_cache(maxsize=64)
def _numpy_code(dtype):
    """Returns a type as DLPack has it. NumPy makes the name of a type anew each time that it is asked for."""
    return NUMPY_CODES.get(dtype.name, (0, 0)) if dtype.isnative else (0, 0)


class Operand:
    """An array, its DLTensor, and what keeps the DLTensor alive. `types` are those that it may have."""

    def __init__(self, name, array, stream=None, types=DTYPES):
        self.name = name
        self.array = array
        if _is_instance(array, "numpy", "ndarray"):
            self._from_numpy(array)
        elif hasattr(array, "__dlpack__"):
            self._from_dlpack(array, stream)
        else:
            raise InvalidArgument(f"{name}: {type(array).__name__} is no array: it has no __dlpack__()")
        tensor = self.tensor
        self.shape = tuple(tensor.shape[: tensor.ndim])
        self.dtype = DTYPE_CODES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
        if self.dtype not in types:
            raise InvalidArgument(f"{name}: its type is {getattr(array, 'dtype', 'unknown')}; allowed: {', '.join(types)}")
        if tensor.device_type not in DEVICE_NAMES:
            raise InvalidArgument(
                f"{name}: is on a device of DLPack's type {tensor.device_type}; allowed: CPU and CUDA"
            )
        self.device = "cpu" if tensor.device_type == CPU else f"cuda:{tensor.device_id}"

    def _from_numpy(self, array):
        if _is_instance(array, "numpy.ma", "MaskedArray"):
            raise InvalidArgument(f"{self.name}: is a masked array, whose mask normjit would not see; give its data")
        data, self.read_only = array.__array_interface__["data"]
        code, bits = _numpy_code(array.dtype)
        size = max(array.itemsize, 1)
        if any(stride % size for stride in array.strides):
            raise InvalidArgument(f"{self.name}: its strides are no multiples of its elements' size")
        integers = ctypes.c_int64 * max(array.ndim, 1)
        self._owner = integers(*array.shape), integers(*(stride // size for stride in array.strides))
        self.tensor = DLTensor(data, CPU, 0, array.ndim, code, bits, 1, *self._owner, 0)

    def _from_dlpack(self, array, stream):
        if getattr(array, "requires_grad", False):
            if "torch" not in _packages(type(array)) or sys.modules["torch"].is_grad_enabled():
                raise InvalidArgument(f"{self.name}: requires a gradient, which would end here; call normjit.torch.layer_norm, "
                                      "rms_norm or formula, or give detach()")
            array = array.detach()
        if "torch" in _packages(type(array)):
            _check_tensor(self.name, array)
        on_gpu = device_type(self.name, array) != CPU
        self._owner = capsule = _capsule_of(self.name, array, {"stream": stream or 1} if on_gpu else {})
        self.read_only = _is_of_jax(array)  # before DLPack 1, capsules could not say that they are read-only
        if _capsule_is(capsule, b"dltensor_versioned"):
            managed = DLManagedTensorVersioned.from_address(_capsule_pointer(capsule, b"dltensor_versioned"))
            self.read_only |= bool(managed.flags & READ_ONLY)
            self.tensor = managed.tensor
        elif _capsule_is(capsule, b"dltensor"):
            self.tensor = DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
        else:
            raise InvalidArgument(f"{self.name}: its __dlpack__() returns no tensor but {type(capsule).__name__}")


def _check_tensor(name, tensor):
    """Raises InvalidArgument for a torch tensor that is a lazy negation or has a tangent, and if torch traces the call:
    neither the tangent nor the trace would include it."""
    torch = sys.modules["torch"]
    if tensor.is_neg():
        raise InvalidArgument(f"{name}: is a view that negates what it reads, which normjit would not see; give resolve_neg()")
    proxy_mode = _loaded("torch.fx.experimental.proxy_tensor", "get_proxy_mode")  # a mode: within make_fx()
    if torch.jit.is_tracing() or (proxy_mode is not None and proxy_mode() is not None):
        raise InvalidArgument(f"{name}: torch traces this call, which would not be in the trace; call normjit.torch there")
    forward = torch.autograd.forward_ad
    if forward._current_level >= 0 and forward.unpack_dual(tensor).tangent is not None:
        raise InvalidArgument(f"{name}: has a tangent, which would end here; call normjit.torch.layer_norm, rms_norm or formula")


NEEDS_DATA = "torch.compile traces this call of normjit, and sees no data; call normjit.torch there"


def device_type(name, array):
    """Returns DLPack's number for the kind of device. Raises InvalidArgument for arrays without data from JAX and
    torch.export, because their own messages name neither the argument nor what to do."""
    if "torch._dynamo" in sys.modules and sys.modules["torch"].compiler.is_compiling():
        raise InvalidArgument(f"{name}: torch.export sees no data; call normjit.torch there")
    if _is_of_jax(array):
        if isinstance(array, sys.modules["jax"].core.Tracer):
            raise InvalidArgument(f"{name}: is a tracer of JAX's, without data; inside jit, grad and vmap call normjit.jax")
        if array.is_deleted():
            raise InvalidArgument(f"{name}: is an array of JAX's that was deleted, or donated to a call")
    return _asked(name, lambda: array.__dlpack_device__()[0])


def _capsule_of(name, array, arguments):
    """Returns the capsule. `arguments` has the stream in DLPack's numbers, where 1 is the default stream."""
    try:
        return array.__dlpack__(max_version=(1, 0), **arguments)
    except TypeError:  # an array from before DLPack 1
        return _asked(name, array.__dlpack__, **arguments)
    except Exception as error:
        raise _no_data(name, error) from error


def _asked(name, method, **arguments):
    try:
        return method(**arguments)
    except Exception as error:
        raise _no_data(name, error) from error


def _no_data(name, error):
    """Returns an error with the library's own message. For arrays without data, sparse arrays, or devices without a
    DLPack number, libraries raise different exceptions."""
    return InvalidArgument(f"{name}: its library does not hand its data over: {type(error).__name__}: {error}")


@functools.lru_cache
def _packages(kind):
    """Returns the packages of a class and of its base classes."""
    return [each.__module__.partition(".")[0] for each in kind.__mro__]


def _is_of_jax(array):
    return not {"jax", "jaxlib"}.isdisjoint(_packages(type(array)))


def library_of(array):
    """Returns the module that makes arrays of this kind."""
    for package in _packages(type(array)):
        if package in ("numpy", "cupy", "torch"):
            return sys.modules[package]
    if _is_of_jax(array):
        raise InvalidArgument("JAX's arrays cannot be written to; give NumPy arrays as out=")
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    raise InvalidArgument(f"{type(array).__name__} does not say how such arrays are made; give all of them as out=")


def empty(like, shape, dtype=None):
    """Returns an array of the same kind on the same device, with the same element type or the named one."""
    library = library_of(like)
    dtype = getattr(library, dtype) if dtype else like.dtype
    if library.__name__ in ("numpy", "cupy"):
        return library.empty(shape, dtype=dtype)
    return library.empty(shape, dtype=dtype, device=like.device)


def was_written(array):
    """Tells torch's autograd that an array was written, so that it refuses a backward pass through a tensor that was
    changed after it was saved."""
    if "torch" in _packages(type(array)):
        sys.modules["torch"].autograd.graph.increment_version(array)


def current_stream(array):
    """Returns the handle of the stream that the array's library works on."""
    if hasattr(array, "is_cuda"):
        return sys.modules["torch"]._C._cuda_getCurrentRawStream(array.device.index)
    if "cupy" in sys.modules and type(array).__module__.startswith("cupy"):
        return sys.modules["cupy"].cuda.get_current_stream().ptr
    return 0


def stream_of(tensor):
    """Returns the handle of the stream that torch works on; None for a tensor on the CPU."""
    return current_stream(tensor) if tensor.is_cuda else None


def stream_handle(stream):
    """Returns a stream as a number, given a number, a torch or CuPy stream, or anything with the protocol of CUDA
    streams."""
    if hasattr(stream, "__cuda_stream__"):
        return stream.__cuda_stream__()[1]
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return getattr(stream, attribute)
    if isinstance(stream, int):
        return stream
    raise InvalidArgument(f"stream: {type(stream).__name__} is no CUDA stream and no handle of one")


@contextlib.contextmanager
def on_stream(array, stream):
    """Tells the array's library that work on this stream uses the memory that it hands out meanwhile."""
    if hasattr(array, "is_cuda"):
        cuda = sys.modules["torch"].cuda
        with cuda.stream(cuda.ExternalStream(stream, device=array.device)):
            yield
    elif "cupy" in sys.modules and type(array).__module__.startswith("cupy"):
        cuda = sys.modules["cupy"].cuda
        with array.device, cuda.ExternalStream(stream):
            yield
    else:
        yield


def gpu_bytes(like, size):
    """Returns an array of bytes on the same GPU."""
    library = library_of(like)
    if library.__name__ == "torch":
        return library.empty(size, dtype=library.uint8, device=like.device)
    if library.__name__ == "cupy":
        return library.empty(size, dtype=library.uint8)
    return library.empty(size, dtype=library.uint8, device=like.device)
