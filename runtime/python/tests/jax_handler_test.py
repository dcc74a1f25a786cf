# SPDX-License-Identifier: Apache-2.0
# needs: numpy
"""Calls libnormjit_jax.so as XLA does, including errors, with an imitation of XLA."""
import ctypes
import os

from normjit import _library
import numpy as np
import pytest
import reference

Pointer, Size, Int32, Int64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_int64
F32, S32 = 11, 4
STRING, EXECUTE, METADATA = 4, 3, 1
INVALID_ARGUMENT, INTERNAL, UNAVAILABLE = 3, 13, 14
PLACES = ("internal error_create error_message error_destroy handler_register stream_get type_register context_get "
          "state_set state_get memory_allocate memory_free pool_schedule pool_threads future_create future_available "
          "future_error run_id ordinal_get").split()
FUNCTION = ctypes.CFUNCTYPE(Pointer, Pointer)


def struct(name, *fields):
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


HEAD = [("size", Size), ("extensions", Pointer)]
Buffer = struct("Buffer", *HEAD, ("type", Int32), ("data", Pointer), ("rank", Int64), ("dims", ctypes.POINTER(Int64)))
Buffers = struct("Buffers", *HEAD, ("count", Int64), ("kinds", Pointer),
                 ("buffers", ctypes.POINTER(ctypes.POINTER(Buffer))))
Text = struct("Text", ("data", ctypes.c_char_p), ("length", Size))
Attributes = struct("Attributes", *HEAD, ("count", Int64), ("kinds", ctypes.POINTER(Int32)),
                    ("names", ctypes.POINTER(ctypes.POINTER(Text))), ("values", ctypes.POINTER(Pointer)))
Version = struct("Version", *HEAD, ("major", Int32), ("minor", Int32))
Api = struct("Api", *HEAD, ("version", Version), *((place, Pointer) for place in PLACES))
Call = struct("Call", *HEAD, ("api", ctypes.POINTER(Api)), ("context", Pointer), ("stage", Int32),
              ("arguments", Buffers), ("results", Buffers), ("attributes", Attributes))
Metadata = struct("Metadata", ("size", Size), ("version", Version), ("traits", ctypes.c_uint32), ("state_type", Int64))
Extension = struct("Extension", ("size", Size), ("kind", Int32), ("next", Pointer),
                   ("metadata", ctypes.POINTER(Metadata)))
ErrorCreate = struct("ErrorCreate", *HEAD, ("message", ctypes.c_char_p), ("code", Int32))
Get = struct("Get", *HEAD, ("context", Pointer), ("found", Pointer))


class Xla:
    """The functions that a call receives; an error is a number other than 0."""

    def __init__(self, has_stream=True):
        self.errors, self.destroyed = [], 0
        self.functions = {
            "error_create": FUNCTION(self.error_create), "error_destroy": FUNCTION(self.error_destroy),
            "stream_get": FUNCTION(lambda _: 0 if has_stream else 77), "ordinal_get": FUNCTION(lambda _: 0),
            "pool_schedule": FUNCTION(lambda _: 77), "pool_threads": FUNCTION(lambda _: 77),
        }
        self.api = Api(ctypes.sizeof(Api))
        for place, function in self.functions.items():
            setattr(self.api, place, ctypes.cast(function, Pointer))

    def error_create(self, question):
        asked = ctypes.cast(question, ctypes.POINTER(ErrorCreate))[0]
        self.errors.append((asked.code, asked.message.decode()))
        return 77

    def error_destroy(self, _):
        self.destroyed += 1
        return 0


def buffers(arrays, keep):
    found = (ctypes.POINTER(Buffer) * max(len(arrays), 1))()
    for i, array in enumerate(arrays):
        dims = (Int64 * max(array.ndim, 1))(*array.shape)
        kind = F32 if array.dtype == np.float32 else S32
        one = Buffer(ctypes.sizeof(Buffer), None, kind, array.ctypes.data, array.ndim, dims)
        keep += [dims, one]
        found[i] = ctypes.pointer(one)
    keep.append(found)
    return Buffers(ctypes.sizeof(Buffers), None, len(arrays), None, found)


def call(xla, spec, arguments, results, platform="cpu", tensors=None):
    """Returns what the handler returns: 0, or XLA's error. With `tensors` it is the handler of formulas."""
    keep, given = [], [(b"spec", spec)] * bool(spec) + [(b"tensors", tensors)] * (tensors is not None)
    names = [Text(name, len(name)) for name, _ in given]
    values = [Text(value.encode(), len(value)) for _, value in given]
    attributes = Attributes(ctypes.sizeof(Attributes), None, len(given), (Int32 * 2)(STRING, STRING),
                            (ctypes.POINTER(Text) * 2)(*map(ctypes.pointer, names)),
                            (Pointer * 2)(*map(ctypes.addressof, values)))
    frame = Call(ctypes.sizeof(Call), None, ctypes.pointer(xla.api), None, EXECUTE, buffers(arguments, keep),
                 buffers(results, keep), attributes)
    return handler(platform, "backward" if tensors is None else "formula")(ctypes.byref(frame))


def handler(platform, kind="backward"):
    found = getattr(_library.load("libnormjit_jax.so"), f"normjit_jax_{kind}_{platform}")
    found.restype = Pointer
    return found


SPEC = "rmsnorm cols=96 gamma=f32 out=dx,dgamma"


def problem(rows=3000):
    random = np.random.default_rng(1)
    made = lambda *shape: random.standard_normal(shape).astype("float32")  # noqa: E731
    x, dy, gamma = made(rows, 96), made(rows, 96), made(96)
    rstd = reference.statistics("rmsnorm", x)[1][:, 0].astype("float32")
    return [x, dy, gamma, rstd], [np.empty_like(x), np.empty_like(gamma)]


def test_gradients_without_a_pool():
    """If XLA gives no threads, the caller runs all tasks, and frees the errors by which XLA says so."""
    xla = Xla()
    inputs, outputs = problem()
    assert not call(xla, SPEC, inputs, outputs)
    right = reference.gradients("rmsnorm", inputs[0], inputs[1], inputs[2])
    for got, wanted in zip(outputs, right):
        reference.assert_close(got, wanted, "float32")
    assert xla.errors == []
    if (os.cpu_count() or 1) > 1:
        assert xla.destroyed > 0


def test_slices():
    """Takes matrices of three dimensions and weights with a row for each slice."""
    inputs, outputs = problem(12)
    x, dy, gamma, rstd = inputs
    gammas = np.stack([gamma, 2 * gamma, -gamma])
    sliced = [x.reshape(3, 4, 96), dy.reshape(3, 4, 96), gammas, rstd.reshape(3, 4)]
    results = [np.empty((3, 4, 96), "float32"), np.empty((3, 96), "float32")]
    xla = Xla()
    assert not call(xla, f"{SPEC} slices=any per_slice=gamma", sliced, results)
    for i in range(3):
        right = reference.gradients("rmsnorm", sliced[0][i], sliced[1][i], gammas[i])
        for got, wanted in zip(results, right):
            reference.assert_close(got[i], wanted, "float32")


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_metadata(platform):
    metadata = Metadata(ctypes.sizeof(Metadata), Version(), 0, 99)
    extension = Extension(ctypes.sizeof(Extension), METADATA, None, ctypes.pointer(metadata))
    frame = Call(ctypes.sizeof(Call), ctypes.addressof(extension))
    assert not handler(platform)(ctypes.byref(frame))
    assert (metadata.version.major, metadata.version.minor) == (0, 1)
    assert metadata.traits == 1 and metadata.state_type == 0


def test_metadata_of_older_versions_is_shorter():
    metadata = Metadata(Metadata.state_type.offset, Version(), 0, 99)
    extension = Extension(ctypes.sizeof(Extension), METADATA, None, ctypes.pointer(metadata))
    assert not handler("cpu")(ctypes.byref(Call(ctypes.sizeof(Call), ctypes.addressof(extension))))
    assert metadata.state_type == 99


def test_errors():
    inputs, outputs = problem(8)
    for spec, given, code, message in [
        ("", inputs, INVALID_ARGUMENT, "the call has no attribute spec"),
        ("rmsnorm cols=none", inputs, INVALID_ARGUMENT, "cols"),
        (SPEC, inputs[:3], INVALID_ARGUMENT, "the call has fewer buffers than the spec"),
        (SPEC, [*inputs, inputs[3]], INVALID_ARGUMENT, "the call has more buffers than the spec"),
        (SPEC, [inputs[0], inputs[1].astype("int32"), *inputs[2:]], INVALID_ARGUMENT,
         "dy: the buffer is of none of the types f32, bf16, f16 and f64"),
        (SPEC, [inputs[0][None], *inputs[1:]], INVALID_ARGUMENT, "x: the buffer has 3 dimensions; must have 2"),
        (SPEC, [inputs[0][:, :50], *inputs[1:]], INVALID_ARGUMENT, "x: the buffer's dimensions are [8,50]; must be [8,96]"),
        (SPEC, [inputs[0], inputs[1][:7], *inputs[2:]], INVALID_ARGUMENT,
         "dy: the buffer's dimensions are [7,96]; must be [8,96]"),
        (SPEC, [inputs[0], inputs[1], inputs[2][:50], inputs[3]], INVALID_ARGUMENT,
         "gamma: the buffer's dimensions are [50]; must be [96]"),
        (SPEC, [inputs[0], inputs[1], inputs[2][None], inputs[3]], INVALID_ARGUMENT,
         "gamma: the buffer's dimensions are [1,96]; must be [96]"),
        (SPEC, [*inputs[:3], inputs[3][:5]], INVALID_ARGUMENT, "rstd: the buffer's dimensions are [5]; must be [8]"),
        (SPEC, [*inputs[:3], np.array(1, np.float32)], INVALID_ARGUMENT, "rstd: the buffer's dimensions are []; must be [8]"),
    ]:
        xla = Xla()
        assert call(xla, spec, given, outputs)
        ((found, text),) = xla.errors
        assert found == code and message in text


FORMULA = "norm scaled(x[M,N], gamma[N]) -> y[M,N], s[M] { s = row_sum(x); y = x * gamma } pass=forward cols=96 out=y,s"


def places(*names):
    spec, number = _library.parse_spec(FORMULA), Int32()
    found = []
    for name in names:
        _library.check(_library.library.normjit_spec_tensor(ctypes.byref(spec), name, ctypes.byref(number)))
        found.append(str(number.value))
    return ",".join(found)


def test_a_formula():
    (x, _, gamma, _), (y, _) = problem()
    s = np.empty(len(x), "float32")
    xla = Xla()
    assert not call(xla, FORMULA, [x, gamma], [s, y], tensors=places(b"x", b"gamma", b"s", b"y")), xla.errors
    np.testing.assert_array_equal(y, x * gamma)
    reference.assert_close(s, np.float64(x).sum(-1), "float32")


def test_formulas_that_do_not_fit():
    (x, _, gamma, _), (y, _) = problem(8)
    s, right = np.empty(8, "float32"), places(b"x", b"gamma", b"y", b"s")
    for tensors, given, results, message in [
        (right + ",3", [x, gamma], [y, s], "the attribute tensors does not fit the call"),
        (places(b"x", b"gamma", b"y"), [x, gamma], [y, s], "the call has more buffers than the spec"),
        (places(b"x"), [x, gamma], [y, s], "the attribute tensors does not fit the call"),
        ("x,y", [x, gamma], [y, s], "the attribute tensors does not fit the call"), ("", [x, gamma], [y, s], "does not fit"),
        ("99999999999,1,2,3", [x, gamma], [y, s], "does not fit"), ("-5,1,2,3", [x, gamma], [y, s], "tensor"),
        ("4711,1,2,3", [x, gamma], [y, s], "tensor"), (places(b"x", b"x", b"y", b"s"), [x, gamma], [y, s], "x"),
        (right, [x, gamma[:95]], [y, s], "gamma"), (right, [x[:, :95], gamma], [y, s], "x"),
        (right, [x, gamma], [y[:7], s], "y"), (right, [x, gamma], [y, s[:7]], "s"), (right, [x, gamma], [y.T, s], "y"),
        (right, [x.astype("int32"), gamma], [y, s], "x"), (right, [x, gamma], [s, y], "y")]:
        xla = Xla()
        assert call(xla, FORMULA, given, results, tensors=tensors)
        ((code, text),) = xla.errors
        assert code == INVALID_ARGUMENT and message in text, text


def test_results_that_do_not_fit():
    """The handler does not write beyond the ends of buffers."""
    inputs, (dx, dgamma) = problem(8)
    sliced = [inputs[0].reshape(2, 4, 96), inputs[1].reshape(2, 4, 96), np.stack([inputs[2]] * 2), inputs[3].reshape(2, 4)]
    for spec, given, results, message in [
        (SPEC, inputs, [dx[:4], dgamma], "dx: the buffer's dimensions are [4,96]; must be [8,96]"),
        (SPEC, inputs, [dx, dgamma[:95]], "dgamma: the buffer's dimensions are [95]; must be [96]"),
        (SPEC, inputs, [dx], "the call has fewer buffers than the spec"),
        (SPEC, inputs, [dx, dgamma, dgamma.copy()], "the call has more buffers than the spec"),
        (f"{SPEC} slices=any per_slice=gamma", sliced, [dx.reshape(2, 4, 96), dgamma],
         "dgamma: the buffer's dimensions are [96]; must be [2,96]"),
        (f"{SPEC} slices=any per_slice=gamma", [*sliced[:2], inputs[2], sliced[3]], [dx.reshape(2, 4, 96), sliced[2]],
         "gamma: the buffer's dimensions are [96]; must be [2,96]"),
        (f"{SPEC} slices=any", [*sliced[:2], inputs[2], sliced[3][:, :3]], [dx.reshape(2, 4, 96), dgamma],
         "rstd: the buffer's dimensions are [2,3]; must be [2,4]"),
    ]:
        xla = Xla()
        assert call(xla, spec, given, results)
        assert xla.errors == [(INVALID_ARGUMENT, message)]


def test_cuda_without_a_gpu():
    inputs, outputs = problem(8)
    xla = Xla(has_stream=False)
    assert call(xla, SPEC, inputs, outputs, "cuda")
    assert xla.errors == [(INTERNAL, "XLA gives the call no stream")] and xla.destroyed == 1
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a GPU")
    xla = Xla()
    assert call(xla, SPEC, inputs, outputs, "cuda")
    assert xla.errors[0][0] == UNAVAILABLE
