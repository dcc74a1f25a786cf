# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Reproduces errors that prototypes and other libraries had, and tests enable() and disable() themselves."""
import gc
import weakref

import normjit.torch
import pytest
import torch
from processes import run_program
from torch.fx.experimental.proxy_tensor import make_fx
from torch_cases import DEVICES, TORCH_SAYS_WHY, Served, case, check, layer_norm, leaf
from torch_modules import MaybeGated

LAYER_NORM = ("native_layer_norm_backward", "CPU")


@pytest.fixture(autouse=True)
def disabled_afterwards():
    yield
    normjit.torch.disable()


def backward():
    x, w, b, dy = case(8, 64)
    layer_norm(x, w, b).backward(dy)
    return x, w, b, dy


def test_enable_and_disable():
    assert LAYER_NORM not in normjit.torch.enabled_operators()
    with Served(0):
        backward()
    normjit.torch.enable(devices="cpu")
    normjit.torch.enable(devices=["cpu"])  # again: nothing new
    assert normjit.torch.enabled_operators() == {LAYER_NORM} and normjit.torch.is_enabled() is True
    with Served(1):
        check(*backward())
    normjit.torch.disable()
    normjit.torch.disable()
    assert normjit.torch.enabled_operators() == set() and normjit.torch.is_enabled() is False
    with Served(0):
        check(*backward())


def test_enabled_nests():
    with normjit.torch.enabled():
        with normjit.torch.enabled():
            assert LAYER_NORM in normjit.torch.enabled_operators()
        assert LAYER_NORM in normjit.torch.enabled_operators()
    assert LAYER_NORM not in normjit.torch.enabled_operators()


def test_one_norm_alone():
    with pytest.raises(normjit.Unavailable, match="rms_norm: torch has no operator of it on CPUs"):
        normjit.torch.enable(layer_norm=False, devices="cpu")
    assert normjit.torch.enabled_operators() == set()
    normjit.torch.enable(rms_norm=False, devices="cpu")
    assert normjit.torch.enabled_operators() == {LAYER_NORM}


@pytest.mark.parametrize("devices", ["cpu", "cpu:0", torch.device("cpu"), torch.device("cpu", 0), ("cpu", torch.device("cpu")),
                                     (name for name in ["cpu:0"])])
def test_devices(devices):
    normjit.torch.enable(devices=devices)
    assert normjit.torch.enabled_operators() == {LAYER_NORM}
    if "cuda" in DEVICES:
        normjit.torch.enable(devices=["cuda:0", torch.device("cuda")])
        with pytest.raises(normjit.Unavailable, match="cuda:63: torch sees .* CUDA GPU"):
            normjit.torch.enable(devices="cuda:63")


@pytest.mark.parametrize("threads", ["own", "openmp", "automatic", None])
def test_threads(threads):
    normjit.torch.enable(threads=threads)
    with Served(1):
        check(*backward())
    told = normjit.torch.report()["threads"]
    count, _, owner = told.partition(", ")
    assert int(count) == torch.get_num_threads()
    if threads == "own":
        assert owner == "own"
    else:  # torch's runtime, whatever the wheel calls it
        assert "omp" in owner and owner.endswith("'s")


@pytest.mark.skipif("cuda" in DEVICES, reason="there is no device that cannot be served")
def test_threads_stay_where_enable_raises():
    normjit.torch.enable(threads="own")
    with pytest.raises(normjit.Unavailable, match="cuda: torch sees no CUDA GPU"):
        normjit.torch.enable(devices=["cpu", "cuda"], threads="openmp")
    assert normjit.torch.report()["threads"].endswith(", own")


def test_bad_arguments():
    with pytest.raises(normjit.InvalidArgument, match="threads: 'torch'; allowed: None, 'automatic', 'own', 'openmp'"):
        normjit.torch.enable(threads="torch")
    with pytest.raises(normjit.InvalidArgument, match="devices: 'mps'; allowed: 'cpu', 'cuda'"):
        normjit.torch.enable(devices=["cpu", "mps"])
    for wrong in (0, ["cpu", None], "gpu", "cpu,cuda", torch.device("meta"), "cpu:x"):
        with pytest.raises(normjit.InvalidArgument, match="devices: .*; allowed: 'cpu', 'cuda', 'cuda:0' and so on, torch.device"):
            normjit.torch.enable(devices=wrong)
    with pytest.raises(normjit.InvalidArgument, match="devices: none; allowed: 'cpu', 'cuda'"):
        normjit.torch.enable(devices=[])
    if "cuda" not in DEVICES:
        with pytest.raises(normjit.Unavailable, match="cuda: torch sees no CUDA GPU"):
            normjit.torch.enable(devices="cuda")


def test_old_torch():
    done = run_program("import torch; torch.__version__ = '2.9.1+cpu'; import normjit.torch; normjit.torch.enable()")
    assert "Unavailable: torch 2.9.1+cpu is too old; normjit needs torch 2.10 or newer" in done.stderr


def test_only_slow_code():
    """If normjit could only evaluate formulas, torch's kernels would be faster."""
    done = run_program("import normjit.torch; normjit.torch.enable()", NORMJIT_ISA="portable", CUDA_VISIBLE_DEVICES="")
    assert "Unavailable: cpu: this build makes no machine code for this CPU" in done.stderr


def test_silence():
    """Torch prints to stderr, once per process, when a kernel replaces another; normjit avoids that. It does not import
    torch._dynamo either, which only torch.compile needs and which doubles the time of importing torch."""
    done = run_program("import sys, warnings; warnings.simplefilter('error')\n"
               "import normjit.torch; normjit.torch.enable(); normjit.torch.disable(); normjit.torch.enable()\n"
               "assert 'torch._dynamo' not in sys.modules")
    assert done.returncode == 0 and done.stderr == "" and done.stdout == ""


def test_enable_beside_backward_passes():
    """While enable() runs, a backward pass in another thread finds correct kernels at every moment."""
    done = run_program("""
import torch, normjit.torch
define, passes = torch.library.Library.impl, 0

def beside(*arguments, **named):
    global passes
    define(*arguments, **named)
    x = torch.randn(4, 8, requires_grad=True)
    torch.nn.functional.layer_norm(x, (8,)).sum().backward()
    passes += 1

torch.library.Library.impl = beside
normjit.torch.enable()
assert passes > 0
""")
    assert done.returncode == 0, done.stderr


def test_copy_on_write_inputs_stay_shared():
    normjit.torch.enable()
    x, w, b, dy = case(8, 64)
    shared = torch._lazy_clone(dy)
    assert torch._C._is_cow_tensor(shared)
    with Served(1):
        layer_norm(x, w, b).backward(shared)
    check(x, w, b, dy)
    assert torch._C._is_cow_tensor(shared)


def test_gradient_is_never_written_to():
    """dx in place of dy is wrong if dy has other readers, as with Gemma 2's consecutive norms."""
    normjit.torch.enable()
    x, w, b, dy = case(8, 64)
    kept = dy.clone()
    layer_norm(x, w, b).backward(dy, retain_graph=True)
    assert torch.equal(dy, kept)


def test_double_backward_through_normjit():
    normjit.torch.enable()
    x, w, b, _ = case(3, 8, dtype=torch.float64)
    (dx,) = torch.autograd.grad(layer_norm(x, w, b).square().sum(), x, create_graph=True)
    with normjit.torch.enabled():
        (second,) = torch.autograd.grad(dx.square().sum(), x)
    normjit.torch.disable()
    (dx,) = torch.autograd.grad(layer_norm(x, w, b).square().sum(), x, create_graph=True)
    (right,) = torch.autograd.grad(dx.square().sum(), x)
    torch.testing.assert_close(second, right)


def test_errors_are_exceptions():
    """A call that neither kernel accepts raises a Python exception with both reasons, from C++."""
    normjit.torch.enable(devices="cpu")
    x = torch.ones(2, 3, dtype=torch.int32)
    message = "input: its type is none of float32, bfloat16, float16 and float64; nor could [^\n]*" + ("Int'$" if TORCH_SAYS_WHY else "backward$")
    with pytest.raises(RuntimeError, match=message):
        torch.ops.aten.native_layer_norm_backward(x, x, [3], x[:, :1], x[:, :1], None, None, [True, False, False])
    assert "its type is none of" in normjit.torch.report()["reason"]
    check(*backward())


def test_what_is_left_to_torch():
    """The operator to which calls are left is torch's kernel, whatever is enabled."""
    x, w, b, dy = (t.detach() for t in case(8, 64))
    _, mean, rstd = torch.native_layer_norm(x, (64,), w, b, 1e-5)
    arguments = (dy, x, [64], mean, rstd, w, b, [True, True, True])
    right = torch.ops.aten.native_layer_norm_backward(*arguments)
    normjit.torch.enable()
    with Served(0):
        got = torch.ops.normjit.torch_layer_norm_backward(*arguments)
    assert all(torch.equal(*pair) for pair in zip(got, right))
    with Served(1):
        torch.ops.aten.native_layer_norm_backward(*arguments)


FORK_AUTOGRAD = """
import os, torch, normjit.torch
torch.set_num_threads(1)
normjit.torch.enable()
x, dy, norm = torch.randn(8, 64), torch.randn(8, 64), torch.nn.LayerNorm(64)
def gradients():
    norm.zero_grad()
    norm(x).backward(dy)
    return norm.weight.grad.clone()
first = gradients()
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(gradients(), first) else 1)
assert os.waitpid(child, 0)[1] == 0
assert normjit.torch.report()["left_to_torch"] == 0
"""


def test_fork():
    """A child of fork() keeps working unless torch's threads prevent it: libgomp's threads do not survive, and autograd
    refuses to work in a child of a process in which it has a thread for a GPU."""
    done = run_program(FORK_AUTOGRAD, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr


FORK_OF_PATCHED = """
import os, sys, torch, normjit.torch
torch.set_num_threads(1)
norm, x = torch.nn.RMSNorm(64, eps=1e-6), torch.randn(8, 64)
normjit.torch.patch(norm, forward=sys.argv[1:] == ["forward"])
def gradients():
    norm.zero_grad()
    norm(x).sum().backward()
    return norm.weight.grad.clone()
first = gradients()
child = os.fork()
if child == 0:
    try:
        same = torch.equal(gradients(), first)
    except RuntimeError as error:
        same = print(error, file=sys.stderr, flush=True)
    os._exit(0 if same else 1)
assert os.waitpid(child, 0)[1] == 0
assert not normjit.torch.report()["left_to_modules"]
"""


@pytest.mark.skipif(torch.__version__ < (2, 15), reason="patch() makes older versions start autograd's threads")
@pytest.mark.parametrize("arguments", [[], ["forward"]])
def test_fork_of_a_patched_model(arguments):
    """What patch() tries starts no thread of autograd."""
    done = run_program(FORK_OF_PATCHED, *arguments, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr


FORK = """
import os, signal, sys, torch, normjit.torch
torch.set_num_threads(3)
normjit.torch.enable(threads=os.environ["THREADS"])
x, dy, w = torch.randn(700, 768), torch.randn(700, 768), torch.randn(768)
_, mean, rstd = torch.native_layer_norm(x, [768], w, w, 1e-5)
def gradients():
    found = torch.ops.aten.native_layer_norm_backward(dy, x, [768], mean, rstd, w, w, [True] * 3)
    return [t.numpy().tobytes() for t in found]
first = gradients()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if gradients() == first else 1)
assert os.waitpid(child, 0)[1] == 0
assert normjit.torch.report()["left_to_torch"] == 0
"""


@pytest.mark.parametrize("threads", ["openmp", "automatic", "own"])
def test_fork_with_threads(threads):
    """In a child of fork(), torch itself would wait for OpenMP threads that do not exist; our launches do not. The
    parent may use a GPU."""
    done = run_program(FORK, THREADS=threads)
    assert done.returncode == 0, done.stderr


FAULTS = """
import resource, sys, torch, normjit.torch
if sys.argv[1:] == ["keep"]:
    normjit.torch.keep_host_memory()
x = torch.ones(48 << 18)
for _ in range(20):
    x + 1
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    x + 1
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_kept_memory():
    """A result of 48 MB is 12288 new pages each time, unless its memory is kept."""
    done = [run_program(FAULTS, word) for word in ("", "keep")]
    assert [each.returncode for each in done] == [0, 0], done
    faults = [int(each.stdout) for each in done]
    if faults[0] < 1000:
        pytest.skip("this system keeps freed memory, or has large pages")
    assert faults[1] < faults[0] / 10


COMPILED = """
import sys, torch
if sys.argv[1:] == ["enable"]:
    import normjit.torch
    normjit.torch.enable()
x = torch.ones(4, 8).requires_grad_()
norm = torch.compile(torch.nn.LayerNorm(8))
norm(x).sum().backward()
from torch._dynamo.utils import counters
print(counters["aot_autograd"]["autograd_cache_hit"])
"""


def test_compiled_graphs_outlive_normjit(tmp_path):
    """Torch keeps graphs on disk: a graph written by a process with normjit must run in one without."""
    def process(*words):
        # With a GPU, torch's processes for compiling would start in the background, and a program that ends before they
        # have started may wait 300 s for them (pytorch/pytorch#162199).
        return run_program(COMPILED, *words, TORCHINDUCTOR_CACHE_DIR=str(tmp_path), TORCHINDUCTOR_COMPILE_THREADS="1")

    first = process("enable")
    if "InvalidCxxCompiler" in first.stderr:
        pytest.skip("torch.compile finds no C++ compiler")
    assert first.returncode == 0, first.stderr
    second = process()
    assert second.returncode == 0, second.stderr
    assert (first.stdout.strip(), second.stdout.strip()) == ("0", "1")


@pytest.mark.parametrize("as_array", [lambda x: x, lambda x: x.numpy()])
@pytest.mark.parametrize("function", [normjit.rms_norm, lambda x, norm=normjit.formula("l2norm"): norm(x=x)])
def test_torch_compile_calls_functions_on_arrays_as_they_are(function, as_array):
    torch._dynamo.reset()
    x, of = as_array(torch.arange(24.0).reshape(3, 8)), lambda x: function(x * 2)[0] + 1
    assert (torch.compile(of, backend="eager")(x) == of(x)).all()
    torch._dynamo.reset()  # it has given up on the function
    with pytest.raises(Exception, match="torch.compile traces this call of normjit, and sees no data; call normjit.torch there"):
        torch.compile(of, backend="eager", fullgraph=True)(x)


@pytest.mark.parametrize("function", [normjit.rms_norm, lambda x: normjit.formula("l2norm")(x=x)])
def test_functions_on_arrays_are_not_exported(function):
    class Module(torch.nn.Module):
        def forward(self, x):
            return function(x)[0]

    with pytest.raises(normjit.InvalidArgument, match="x: torch.export sees no data; call normjit.torch there"):
        torch.export.export(Module(), (torch.ones(3, 8),), strict=False)


def tangent(function, x):
    with torch.autograd.forward_ad.dual_level():
        return function(torch.autograd.forward_ad.make_dual(x, x))


@pytest.mark.parametrize("use", [lambda f, x: make_fx(f)(x), lambda f, x: make_fx(f, pre_dispatch=True)(x), torch.jit.trace,
                                 tangent, lambda f, x: torch.func.jvp(f, (x,), (x,))])
@pytest.mark.parametrize("function", [normjit.rms_norm, lambda x: normjit.formula("l2norm")(x=x)])
def test_functions_on_arrays_where_torch_would_lose_their_call(function, use):
    with pytest.raises(normjit.InvalidArgument, match="^x: (torch traces this call, which would not be in the trace; "
                                                      "call normjit.torch there|has a tangent, which would end here)"):
        use(lambda x: function(x)[0], torch.ones(3, 8))


def test_models_and_their_classes_are_not_kept():
    class Own(MaybeGated):
        def forward(self, x, gate=None):
            return super().forward(x, gate)

    module = normjit.torch.patch(Own())
    with Served(1):
        module(x=leaf(1, 3, 8)).sum().backward()
    kept = [weakref.ref(module), weakref.ref(module.weight), weakref.ref(Own)]
    del module, Own
    gc.collect()
    assert [each() for each in kept] == [None, None, None]
