# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""What rowwise() accepts and refuses: arguments, traces and gradients. Values and modes are in
torch_formulas_test.py."""
import concurrent.futures
import copy
import functools
import gc
import math
import pickle
import weakref

import normjit
import pytest
import torch
from normjit.torch import rowwise
from processes import run_program


def ones(*shape, **named):
    return torch.ones(*(shape or (6, 8)), **named)


@pytest.mark.parametrize("function", [
    lambda x: torch.rsub(x, 1.0, alpha=1.02), lambda x: torch.ops.aten.sub.Scalar(x, 2.0, 3), lambda x: 1 - x,
    lambda x: torch.ops.aten.add.Scalar(x, 2.0, -3), lambda x: torch.sub(x, x * x, alpha=3), lambda x: torch.add(x, 2, alpha=3)])
def test_alpha(function):
    x = ones() * 1.5
    torch.testing.assert_close(rowwise(function)(x), function(x))


def test_equal_constants_that_code_tells_apart_have_traces_of_their_own():
    by_type = rowwise(lambda x, k: x * (7 if k is True else 3 if isinstance(k, int) else 5))
    by_sign = rowwise(lambda x, k: x * math.copysign(3, k[0]))
    for _ in range(2):
        assert [by_type(ones(), k)[0, 0].item() for k in (1, True, 1.0)] == [3, 7, 5]
        assert [by_sign(ones(), (k,))[0, 0].item() for k in (0.0, -0.0)] == [3, -3]


def scaled(x, w=None, *, bias=None, by=1.0):
    y = x * by if w is None else x * w * by
    return y if bias is None else y + bias


@pytest.mark.parametrize("arguments, named", [
    ((ones(3, 8), ones(8)), {}), ((), dict(w=ones(8), x=ones(3, 8))), ((ones(3, 8),), dict(by=2.0, w=ones(3, 1))),
    ((), dict(bias=ones(8), by=3.0, x=ones(3, 8))), ((ones(3, 8), None), dict(bias=ones(3, 1)))])
def test_the_first_tensor_is_that_of_the_first_parameter(arguments, named):
    assert torch.equal(rowwise(scaled)(*arguments, **named), scaled(*arguments, **named))


def test_what_can_be_called():
    doubled = rowwise(functools.partial(scaled, by=2.0))
    for function in (doubled, pickle.loads(pickle.dumps(doubled)), copy.deepcopy(doubled)):
        assert torch.equal(function(ones()), ones() * 2)
    with pytest.raises(normjit.InvalidArgument, match="sigmoid does not tell its parameters; give a Python function"):
        rowwise(torch.sigmoid)
    with pytest.raises(normjit.InvalidArgument, match="RMSNorm is a module; give a function that takes its weights as arguments"):
        rowwise(torch.nn.RMSNorm(8))
    with pytest.raises(normjit.InvalidArgument, match="^rowwise: is str; must be a function"):
        rowwise("norm n(x[M,N]) -> y[M,N] { y = x }")


class Scaling(torch.nn.Module):
    by = 3.0

    def __init__(self, function):
        super().__init__()
        self.function = function

    @rowwise
    def scaled(self, x):
        return x * self.by

    def forward(self, x):
        return self.function(x) if self.function is not None else self.scaled(x * 2)


def test_an_objects_attribute_is_no_method_and_compiles():
    module = Scaling(rowwise(scaled))
    assert torch.equal(torch.compile(module, fullgraph=True, backend="aot_eager")(ones()), ones())
    assert torch.equal(copy.deepcopy(module)(ones()), ones())


def test_methods():
    module = Scaling(None)
    method = module.scaled
    for each in (method, pickle.loads(pickle.dumps(method)), copy.deepcopy(method), functools.partial(Scaling.scaled, module)):
        assert torch.equal(each(ones()), ones() * 3)
    assert pickle.loads(pickle.dumps(Scaling.scaled)) is Scaling.scaled
    assert torch.equal(torch.export.export(module, (ones(),), strict=False).module()(ones()), ones() * 6)
    assert torch.equal(torch.compile(module, backend="aot_eager")(ones()), ones() * 6)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="rowwise: the object of a method is not a constant for torch.compile"):
        torch.compile(module, fullgraph=True, backend="aot_eager")(ones())


class Scheduled(torch.nn.Module):
    by = 3.0
    calls = 0

    @rowwise
    def scaled(self, x):
        self.calls += 1
        return x * self.by if self.training else x


def test_numbers_of_a_methods_object_may_change():
    module, traces = Scheduled(), []
    for training, by in ((True, 3.0), (False, 3.0), (True, 2.0), (True, 3.0), (True, 3)):
        module.train(training).by = by
        for _ in range(2):  # what the function itself sets does not make further traces
            assert torch.equal(module.scaled(ones()), ones() * (by if training else 1))
            traces.append(module.calls)
    assert traces[0::2] == traces[1::2] and traces[4] == traces[6] and len(set(traces)) == 4


def test_objects_and_functions_are_not_kept():
    module, scaling = Scheduled(), rowwise(lambda x, kind: x * kind.by)
    captured = lambda x: x * 2  # noqa: E731
    assert torch.equal(module.scaled(ones()) + scaling(ones(), module), ones() * 6)
    assert torch.equal(rowwise(captured)(ones()), ones() * 2)
    kept = [weakref.ref(module), weakref.ref(captured)]
    del module, captured
    gc.collect()
    assert [each() for each in kept] == [None, None]


def test_a_function_that_compiled_code_makes():
    making = lambda x: rowwise(lambda x: x * 2)(x) + 1  # noqa: E731
    torch._dynamo.reset()
    assert torch.equal(torch.compile(making, backend="aot_eager")(ones()), ones() * 3)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="is made in code that torch.compile traces; make it outside"):
        torch.compile(making, fullgraph=True, backend="aot_eager")(ones())


def positional_only(x, /, w):
    return x * w


def test_arguments_that_do_not_fit():
    for arguments, named, message in [((ones(), None, None), {}, "too many positional arguments"),
                                      ((ones(),), dict(x=ones()), "multiple values for argument 'x'"),
                                      ((ones(),), dict(z=ones()), "an unexpected keyword argument 'z'"),
                                      ((), dict(w=ones(8)), "missing a required .*argument: 'x'")]:
        with pytest.raises(TypeError, match=message):
            rowwise(scaled)(*arguments, **named)
    with pytest.raises(normjit.InvalidArgument, match="scaled: no argument is a tensor: x is list, w is float"):
        rowwise(scaled)([ones()], 2.0)
    assert torch.equal(rowwise(positional_only)(ones(), w=ones(8)), ones())


@pytest.mark.parametrize("function", [
    lambda a, ba: ba * 2, lambda x, dx: x * dx, lambda é, e: é - e * 2, lambda x, x_0: x - x_0 * 2, lambda y, dy: y * dy,
    lambda _, v0: _ / v0, lambda N, a_name_that_is_longer_than_the_40_letters_of_a_formula: N * 2,
    lambda lambda_, row_mean: lambda_ * row_mean])
def test_names_of_parameters(function):
    leaves = (ones() * 2).requires_grad_(), (ones() * 3).requires_grad_()
    y, right = rowwise(function)(*leaves), function(*leaves)
    torch.testing.assert_close(y, right)
    for got, wanted in zip(*(torch.autograd.grad(each.sum(), leaves, allow_unused=True) for each in (y, right))):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("function", [
    lambda x: x / x.shape[0], lambda x: x + x.shape[0], lambda x: x / x.numel(), lambda x: x * 2 if x.shape[0] > 4 else x,
    lambda x: x * 2 if x.shape[0] > 1000 else x, lambda x: x * 2 if x.shape[0] == 1 else x])
def test_a_number_of_rows_is_no_constant(function):
    with pytest.raises(normjit.InvalidArgument, match="computes something else for another number of rows"):
        rowwise(function)(ones())


@pytest.mark.parametrize("function", [
    lambda x: x * (x.shape[0] / x.shape[1]), lambda x: x + (x.shape[0] - x.shape[1]), lambda x: x + (x.shape[0] > x.shape[2])])
def test_relations_of_dimensions_are_no_constants(function):
    with pytest.raises(normjit.InvalidArgument, match="computes something else for another number of rows"):
        rowwise(function)(ones(6, 2, 3, 8))


def test_a_number_of_rows_as_an_argument():
    norm = rowwise(lambda x, rows: x / rows * x.shape[-1])
    assert [norm(ones(rows, 8), rows)[0, 0].item() for rows in (1, 4)] == [8, 2]
    assert torch.equal(rowwise(lambda x, w: x * w * x.shape[0])(ones(8), ones(8)), ones(8) * 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("function", [lambda x: x + 1e-4 * x.detach(), lambda x: torch.sqrt(x - 5) + x.detach(),
                                      lambda x: torch.log(-x) * 1e-2 + 1e-2 * x.detach()])
def test_gradients_are_compared_where_they_are_finite(function, dtype):
    with pytest.raises(normjit.InvalidArgument, match="its gradient of x is not the gradient of what it computes"):
        rowwise(function)(7 * ones(dtype=dtype))


def difference(x):
    mean = x.mean(-1, keepdim=True)
    return ((x - mean) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) - mean.pow(2) + 1e-5)).to(x.dtype)


@pytest.mark.parametrize("cols", [1, 2, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [difference, lambda x: 1 / (x - 0.9), lambda x: x.half().amax(-1, keepdim=True).float() * x])
def test_a_functions_own_rounding_is_no_other_gradient(function, dtype, cols):
    assert rowwise(function)(ones(3, cols, dtype=dtype)).dtype == function(ones(3, cols, dtype=dtype)).dtype


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, dy):
        return dy.clone().mul_(2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_right_gradient_of_ones_own(dtype):
    assert torch.equal(rowwise(lambda x: Doubled.apply(x))(ones(dtype=dtype)), 2 * ones(dtype=dtype))


def test_functions_of_some_numbers():
    roots = lambda x, w: torch.sqrt(x - 5) * torch.log(-w)  # noqa: E731
    x, w = (7 * ones()).requires_grad_(), (-2 * ones(8)).requires_grad_()
    y, right = rowwise(roots)(x, w), roots(x, w)
    torch.testing.assert_close(y, right)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), (x, w)), torch.autograd.grad(right.sum(), (x, w)))
    with pytest.raises(normjit.InvalidArgument, match="they are not finite for any numbers that were tried, of -1000 to 1000"):
        rowwise(lambda x: torch.sqrt(-x * x))(x)


@pytest.mark.parametrize("function", [lambda x: x * 2 if x.device.type == "meta" else x, lambda x: x * 2 if x.requires_grad else x])
def test_what_is_traced_is_what_is_computed(function):
    with pytest.raises(normjit.InvalidArgument, match="computes something else than was traced"):
        rowwise(function)(ones())


WEIGHT, SCALAR, NO_DATA = ones(8), torch.tensor(2.0), ones(8, device="meta")


@pytest.mark.parametrize("function, message", [
    (lambda x: x * WEIGHT, r"aten.mul.Tensor: a tensor of shape \(8,\) is not an argument of the function; pass tensors as arguments"),
    (lambda x: x + (WEIGHT * 2).exp(), r"aten.add.Tensor: a tensor of shape \(8,\) is not an argument of the function"),
    (lambda x: x * SCALAR, r"a tensor of shape \(\) is not an argument of the function; .*, and write numbers as Python numbers"),
    (lambda x: x * torch.tensor(2.0), r"a tensor of shape \(\) is not an argument of the function"),
    (torch.nn.functional.dropout, "bernoulli_.*: draws random numbers, as dropout does; draw them before the call"),
    (lambda x: x + torch.randn_like(x), "randn_like.*: draws random numbers"),
    (lambda x: x * NO_DATA, r"a tensor of shape \(8,\) is not an argument of the function"),
    (lambda x: x.roll(4), "aten.roll.default, of shape .*: a row can be rolled by a half of it only, over the last dimension"),
    (lambda x: x.roll((4, 4), (0, -1)), "a row can be rolled by a half of it only, over the last dimension")])
def test_refusals_have_their_reason(function, message):
    with pytest.raises(normjit.InvalidArgument, match=message):
        rowwise(function)(ones())


def nearest(x):
    scale = x.float().abs().amax(-1, keepdim=True) / 127
    return (x.float() / scale).round().clamp(-127, 127).to(torch.int8), scale, x * 2


def toward_0(x):
    return x.float().clamp(-2, 2).mul(30).to(torch.int8)


@pytest.mark.parametrize("compiled", [False, True])
def test_results_of_int8(compiled):
    x = torch.randn(5, 200, generator=torch.Generator().manual_seed(1), dtype=torch.bfloat16)
    function = torch.compile(rowwise(nearest), backend="aot_eager", fullgraph=True) if compiled else rowwise(nearest)
    for made, wanted in zip(function(x), nearest(x)):
        assert made.dtype == wanted.dtype and torch.equal(made, wanted)
    assert torch.equal(rowwise(toward_0)(x), toward_0(x))
    x = x.float().requires_grad_()
    y, scale, doubled = function(x)
    assert not y.requires_grad
    (scale.sum() + doubled.sum()).backward()
    other = x.detach().clone().requires_grad_()
    sum(each.sum() for each in nearest(other)[1:]).backward()
    torch.testing.assert_close(x.grad, other.grad)


def test_tensors_that_are_no_rows_of_numbers_are_refused():
    with pytest.raises(normjit.InvalidArgument, match="x: has no dimensions; the last must be that of a row"):
        rowwise(lambda x: x * 2)(SCALAR)
    for dtype in (torch.bool, torch.int16, torch.int32, torch.complex64):
        with pytest.raises(normjit.InvalidArgument, match=f"mask: its type is {dtype}; must be a floating-point type of torch.float32"):
            rowwise(lambda x, mask: x * mask)(ones(), ones().to(dtype))
    with pytest.raises(normjit.InvalidArgument, match="^w: is on meta; x is on c"):
        rowwise(scaled)(ones(), NO_DATA)
    nested = torch.nested.nested_tensor([ones(2, 8), ones(3, 8)], layout=torch.jagged)
    for layout in (nested, ones().to_sparse()):
        with pytest.raises(normjit.InvalidArgument, match="is a nested tensor; give its values|must be torch.strided"):
            rowwise(lambda x: x * 2)(layout)


@pytest.mark.parametrize("function", [
    lambda x: x * 2 if x.sum() > 0 else x, lambda x: x * x.amax().item(), lambda x: x * len(x.nonzero()),
    lambda x: x * 2 if torch.equal(x, x) else x])
def test_code_that_reads_numbers_of_tensors_is_refused(function):
    with pytest.raises(normjit.InvalidArgument, match="the code reads values of a tensor"):
        rowwise(function)(ones())


normalized = rowwise(lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def test_a_rowwise_function_may_call_another():
    both = rowwise(lambda x, w: normalized(x * w) + normalized(x) * w)
    x, w = torch.randn(6, 8, requires_grad=True), torch.randn(8)
    y, wanted = both(x, w), normalized(x * w) + normalized(x) * w
    torch.testing.assert_close(y, wanted)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(wanted.sum(), x))


def test_a_rowwise_function_may_call_what_torch_compiled():
    squared = torch.compile(lambda x: x * x, backend="eager")
    x = torch.randn(3, 8)
    got = rowwise(lambda x: x * torch.rsqrt(squared(x).mean(-1, keepdim=True) + 1))(x)
    torch.testing.assert_close(got, x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1))


def test_first_calls_in_many_threads():
    """Each thread needs its own trace, just as another number of columns does."""
    scaled = rowwise(lambda x: x * x.shape[-1])
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        results = threads.map(lambda cols: scaled(ones(2, cols))[0, 0].item(), range(1, 25))
    assert list(results) == list(range(1, 25))


FORKED = """
import torch
from normjit.torch import rowwise
from torch.utils.data import DataLoader

torch.set_num_threads(1)
rowwise(lambda x: x * x.mean(-1, keepdim=True))(torch.ones(4, 8, requires_grad=True)).sum().backward()
in_worker = rowwise(lambda x: x * 2)
loaded = DataLoader(range(8), num_workers=1, timeout=60, multiprocessing_context="fork",
                    collate_fn=lambda _: in_worker(torch.ones(3, 8)))
assert [int(each[0, 0]) for each in loaded] == 8 * [2]
"""


def test_first_call_in_a_process_that_was_forked_after_a_backward_pass():
    """Torch allows no backward pass there, so none is compared."""
    done = run_program(FORKED)
    assert done.returncode == 0, done.stderr
