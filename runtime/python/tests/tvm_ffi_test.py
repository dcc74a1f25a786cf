# SPDX-License-Identifier: Apache-2.0
# needs: numpy torch jax tvm_ffi jax_tvm_ffi
"""normjit.tvm_ffi: kernels as functions of tvm-ffi, called from NumPy, torch and JAX."""
import os
import pathlib
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import jax_tvm_ffi
import normjit.tvm_ffi
import numpy as np
import pytest
import reference
import torch
import tvm_ffi
import tvm_ffi.libinfo

CPU = "cpu:0"
GATED = ("norm gated(x[M,N], z[M,N], gamma[N]) -> y[M,N], rstd?[M] "
         "{ rstd = rsqrt(row_mean(x * x) + eps); y = x * rstd * gamma * sigmoid(z) } ")
RMS = "rmsnorm pass=forward cols=48 x=f32 gamma=f32 y=f32 out=y"
prepare = normjit.tvm_ffi.prepare


def random(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def gated(x, z, gamma):
    x, z, gamma = (np.asarray(a, dtype=np.float64) for a in (x, z, gamma))
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gamma / (1 + np.exp(-z))


def test_numpy():
    x, dy, gamma = random(1, 3, 7, 48), random(2, 3, 7, 48), random(3, 48)
    dx, dgamma, dbeta = np.empty_like(x), np.empty_like(gamma), np.empty_like(gamma)
    spec = "layernorm cols=48 x=f32 gamma=f32 stats=recompute"
    assert prepare(spec, CPU, "dgamma", "dbeta", "dx", "x", "dy", "gamma")(dgamma, dbeta, dx, x, dy, gamma) is None
    for name, got, right in zip(("dx", "dgamma", "dbeta"), (dx, dgamma, dbeta), reference.gradients("layernorm", x, dy, gamma)):
        reference.assert_close(got, right, "float32", name)


def test_torch_and_a_formula():
    x, z = torch.randn(5, 96)[:, :48], torch.randn(5, 48)  # x has gaps
    gamma, y = torch.randn(48), torch.empty(5, 48, dtype=torch.bfloat16)
    prepare(GATED + "pass=forward cols=48 x=f32 y=bf16", torch.device("cpu"), "x", "z", "gamma", "y")(x, z, gamma, y)
    reference.assert_close(y.float().numpy(), gated(x, z, gamma), "bfloat16", "y")


@pytest.mark.parametrize("spec", [RMS, GATED + "pass=forward cols=48 out=y"])
def test_expected_rows(spec, tmp_path):
    about, names = spec + " rows=~500 slices=~1", ["x", "gamma", "y"] + ["z"] * (spec != RMS)
    x, gamma, y, z = random(1, 7, 48), random(2, 48), np.empty((7, 48), np.float32), np.full((7, 48), 100, np.float32)
    prepare(about, CPU, *names)(*[x, gamma, y, z][:len(names)])
    reference.assert_close(y, gated(x, z, gamma), "float32", "y")
    assert normjit.tvm_ffi.workspace_bytes(about, CPU, 7) >= 0
    with pytest.raises(ValueError, match="rows=~many: must be a whole number"):
        prepare(spec + " rows=~many", CPU, *names)
    code = f"import normjit.tvm_ffi; normjit.tvm_ffi.prepare({about!r}, 'cpu', *{names})"
    captured = tmp_path / "specs.txt"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "NORMJIT_CAPTURE": str(captured)})
    assert "rows=~512" in captured.read_text()


def test_the_page():
    page = (pathlib.Path(__file__).parents[2] / "TVM_FFI.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    x, z = (torch.randn(5, 1024).bfloat16() for _ in range(2))
    y = torch.empty_like(x)
    exec(code.replace("cuda:0", "cpu"), {"x": x, "z": z, "y": y})
    wanted = gated(x.float(), z.float(), 1) * z.double().numpy()  # silu(z) = z sigmoid(z)
    reference.assert_close(y.float().numpy(), wanted, "bfloat16", "y")


def test_the_gradient_of_a_formula():
    x, z, dy = (torch.randn(6, 48, dtype=torch.float64, requires_grad=True) for _ in range(3))
    (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * torch.sigmoid(z)).backward(dy)
    ones, dx, dz = torch.ones(48, dtype=torch.float64), torch.empty_like(x).detach(), torch.empty_like(z).detach()
    names = "x", "z", "gamma", "dy", "dx", "dz"
    function = prepare(GATED + "cols=48 x=f64 save=none out=dx,dz", CPU, *names)
    function(x.detach(), z.detach(), ones, dy.detach(), dx, dz)
    torch.testing.assert_close(dx, x.grad)
    torch.testing.assert_close(dz, z.grad)


def test_jax():
    function = prepare(GATED + "pass=forward cols=48 x=f32", CPU, "x", "z", "gamma", "y")
    jax_tvm_ffi.register_ffi_target("normjit_gated", function)
    call = jax.ffi.ffi_call("normjit_gated", jax.ShapeDtypeStruct((5, 48), jnp.float32))
    x, z, gamma = random(1, 5, 48), random(2, 5, 48), random(3, 48)
    reference.assert_close(np.asarray(jax.jit(call)(x, z, gamma)), gated(x, z, gamma), "float32", "y")
    with pytest.raises(Exception, match="gamma: cols is 47; must be 48"):
        jax.block_until_ready(call(x, z, gamma[:-1]))


def test_workspace():
    spec = "rmsnorm cols=48 x=f32 gamma=f32 stats=recompute"
    size = normjit.tvm_ffi.workspace_bytes(spec, CPU, 1000)
    assert size > 0
    x, dy, gamma = random(1, 1000, 48), random(2, 1000, 48), random(3, 48)
    names = "x", "dy", "gamma", "dx", "dgamma"
    lent, own = ([np.empty_like(x), np.empty_like(gamma)] for _ in range(2))
    prepare(spec, CPU, *names)(x, dy, gamma, *lent)
    memory = np.zeros(size + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    function = prepare(spec, CPU, "workspace", *names)
    function(memory[begin:begin + size], x, dy, gamma, *own)
    assert all(np.array_equal(a, b) for a, b in zip(lent, own)) and memory.any()
    with pytest.raises(ValueError, match="workspace_bytes: 64; at least .* are needed"):
        function(memory[begin:begin + 64], x, dy, gamma, *own)
    with pytest.raises(ValueError, match="workspace: its elements are not contiguous"):
        function(memory[begin::2], x, dy, gamma, *own)


def test_threads_share_a_function():
    function = prepare(RMS, CPU, "x", "gamma", "y")
    results = [np.empty((64, 48), np.float32) for _ in range(4)]
    x, gamma = random(1, 64, 48), random(2, 48)
    threads = [threading.Thread(target=lambda y=y: [function(x, gamma, y) for _ in range(50)]) for y in results]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    right = reference.layer("rmsnorm", x, gamma)[0]
    for y in results:
        reference.assert_close(y, right, "float32", "y")


@pytest.mark.parametrize("arguments, message", [
    (("rmsnorm columns=3", CPU), "columns"),
    (("norm broken(", CPU), "formula"),
    ((RMS, CPU, "x", "beta"), "beta"),
    ((RMS, CPU, "x", "z"), "it has no tensor 'z'"),
    ((RMS, CPU, "x", "x"), "x: is named twice"),
    ((RMS, CPU, 3), "tensors: must be a text"),
    ((3, CPU), "spec: must be a text"),
    ((RMS, 3), "device"),
    ((RMS, "vulkan"), "device: must be a CPU or CUDA device"),
])
def test_what_prepare_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        prepare(*arguments)


@pytest.mark.parametrize("changed, message", [
    ({"x": random(1, 4, 47)}, "x: cols is 47; must be 48"),
    ({"gamma": random(1, 4, 48)}, "gamma: has 4 rows; must have one dimension"),
    ({"y": random(1, 5, 48)}, "y: has 5 rows; the tensors before it have 4"),
    ({"x": random(1, 4, 48).astype("float64")}, "x: .*f64"),
    ({"x": random(1, 4, 48).astype("int32")}, "x: .*allowed: f32, bf16, f16, f64"),
    ({"x": random(1, 48, 4).T}, "x: the stride of its last dimension is 4; must be 1"),
    ({"x": 3}, "x: .*must be a tensor"),
    ({"x": None}, "x: .*must be a tensor"),
])
def test_what_a_launch_refuses(changed, message):
    y = np.full((4, 48), 7, np.float32)
    given = {"x": random(1, 4, 48), "gamma": random(2, 48), "y": y, **changed}
    with pytest.raises(ValueError, match=message):
        prepare(RMS, CPU, *given)(*given.values())
    assert (y == 7).all()


def test_missing_tensors():
    x, gamma = random(1, 4, 48), random(2, 48)
    with pytest.raises(ValueError, match="y: "):
        prepare(RMS, CPU, "x", "gamma")(x, gamma)
    with pytest.raises(ValueError, match="1 tensors were passed; the kernel has 2"):
        prepare(RMS, CPU, "x", "gamma")(x)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_gpu():
    gpu = torch.device("cuda:0")
    x, dy, gamma = (torch.randn(*shape, device=gpu) for shape in ((4096, 48), (4096, 48), (48,)))
    dx, dgamma = torch.zeros_like(x), torch.zeros_like(gamma)
    names = "x", "dy", "gamma", "dx", "dgamma"
    function = prepare("rmsnorm cols=48 x=f32 gamma=f32 stats=recompute", gpu, *names)
    with torch.cuda.stream(torch.cuda.Stream()):  # a capture fails if the launch goes to another stream
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            function(x, dy, gamma, dx, dgamma)
    assert not dx.any()
    graph.replay()
    torch.cuda.synchronize()
    right = reference.gradients("rmsnorm", *(a.cpu().numpy() for a in (x, dy, gamma)))
    for name, got, wanted in zip(("dx", "dgamma"), (dx, dgamma), right):
        reference.assert_close(got.cpu().numpy(), wanted, "float32", name)
    with pytest.raises(ValueError, match="x: is on a device"):
        function(x.cpu(), dy, gamma, dx, dgamma)


FIELDS = {  # for each of our structs: the one of tvm-ffi, and pairs of fields
    "Device": ("DLDevice", "type device_type, id device_id"),
    "DataType": ("DLDataType", "code code, bits bits, lanes lanes"),
    "Tensor": ("DLTensor", "data data, device device, dimensions ndim, dtype dtype, shape shape, strides strides, "
               "byte_offset byte_offset"),
    "Text": ("TVMFFIByteArray", "data data, size size"),
    "Object": ("TVMFFIObject", "references combined_ref_count, kind type_index, deleter deleter"),
    "Any": ("TVMFFIAny", "kind type_index, small_size small_str_len, integer v_int64, pointer v_ptr, device v_device, "
            "small v_bytes"),
}
NUMBERS = {"Kind::none": "kTVMFFINone", "Kind::integer": "kTVMFFIInt", "Kind::device": "kTVMFFIDevice",
           "Kind::tensor_pointer": "kTVMFFIDLTensorPtr", "Kind::raw_text": "kTVMFFIRawStr",
           "Kind::small_text": "kTVMFFISmallStr", "Kind::text": "kTVMFFIStr", "Kind::function": "kTVMFFIFunction",
           "Kind::tensor": "kTVMFFITensor", "device_cpu": "kDLCPU", "device_cuda": "kDLCUDA", "type_u8.code": "kDLUInt"}
FUNCTIONS = {"function_create": "TVMFFIFunctionCreate", "error_set": "TVMFFIErrorSetRaisedFromCStr",
             "stream": "TVMFFIEnvGetStream", "allocator": "TVMFFIEnvGetDLPackManagedTensorAllocator",
             "tensor_alloc": "TVMFFIEnvTensorAlloc", "release": "TVMFFIObjectDecRef"}


def test_declarations():
    lines = []
    for ours, (theirs, pairs) in FIELDS.items():
        lines.append(f"static_assert(sizeof({ours}) == sizeof({theirs}));")
        for a, b in (pair.split() for pair in pairs.split(", ")):
            lines.append(f"static_assert(offsetof({ours}, {a}) == offsetof({theirs}, {b}));")
            lines.append(f"static_assert(sizeof({ours}::{a}) == sizeof((({theirs}*)nullptr)->{b}));")
    lines += [f"static_assert(int({ours}) == int({theirs}));" for ours, theirs in NUMBERS.items()]
    for ours, theirs in FUNCTIONS.items():  # same number of parameters, and a result of the same size
        lines.append(f"static_assert(count(Api{{}}.{ours}) == count({theirs}) && result(Api{{}}.{ours}) == result({theirs}));")
    source = """#include <cstddef>
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>
#include "tvm_ffi.h"
using namespace normjit::tvm;
template <class R, class... P> constexpr size_t count(R (*)(P...)) { return sizeof...(P); }
template <class R, class... P> constexpr size_t result(R (*)(P...)) { if constexpr (__is_same(R, void)) return 0; else return sizeof(R); }
""" + "\n".join(lines)
    runtime = pathlib.Path(__file__).parents[2]
    folders = [runtime, runtime / "python/src", tvm_ffi.libinfo.find_include_path(),
               tvm_ffi.libinfo.find_dlpack_include_path()]
    done = subprocess.run([os.environ.get("CC", "c++"), "-x", "c++", "-std=c++20", "-fsyntax-only", "-",
                           *(f"-I{folder}" for folder in folders)], input=source.encode(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
