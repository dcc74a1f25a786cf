# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Invalid operands are refused before a kernel runs, in words that name them, by kernels and by fake ones."""
import normjit.torch
import pytest
import torch
from normjit.torch.operators import SCHEMAS, register
from processes import run_program
from torch_cases import TORCH_SAYS_WHY, Served, assert_close, case, leaf

register()
ROWS, COLS = (3, 5), 16


def arguments_of(name, device="cpu"):
    """Returns the operands of a valid call, by name."""
    made = {"x": (*ROWS, COLS), "dy": (*ROWS, COLS), "residual": (*ROWS, COLS), "dresidual": (*ROWS, COLS),
            "mean": (*ROWS, 1), "rstd": (*ROWS, 1), "weight": (COLS,), "bias": (COLS,), "dweight": (COLS,), "dbias": (COLS,)}
    names = [argument.name for argument in getattr(torch.ops.normjit, name).default._schema.arguments]
    numbers = {"normalized_shape": [COLS], "eps": 1e-5, "weight_offset": 0.0, "statistics": True,
               "output_mask": [True] * (3 if name.startswith("layer") else 2)}
    return {n: numbers[n] if n in numbers else torch.ones(made[n], device=device) for n in names}


def call(name, arguments):
    return getattr(torch.ops.normjit, name)(*arguments.values())


def ones(*shape, **options):
    return lambda device: torch.ones(shape, device=device, **options)


MATRICES, STATISTICS, WEIGHTS, SUMS = ("dy", "residual", "dresidual"), ("mean", "rstd"), ("weight", "bias"), ("dweight",
                                                                                                        "dbias")
WRONG = [  # operands, their values, the message
    (("normalized_shape",), lambda _: [8], r"is \[8\]; must be the last dimensions of x, \[3, 5, 16\]"),
    (("normalized_shape",), lambda _: [], r"is \[\]; must be the last dimensions"),
    (("normalized_shape",), lambda _: [16, 5], r"is \[16, 5\]; must be the last dimensions"),
    (("normalized_shape",), lambda _: [-1], r"is \[-1\]; must be the last dimensions"),
    (("normalized_shape",), lambda _: [2**40, 2**40], "must be the last dimensions"),
    (("normalized_shape",), lambda _: [1, 3, 5, 16], "must be the last dimensions"),
    (("output_mask",), lambda _: [True], "has 1 elements; must have [23]"),
    (("output_mask",), lambda _: [True] * 5, "has 5 elements; must have [23]"),
    (MATRICES, ones(5, 16), r"its shape is \[5, 16\]; must be that of x, \[3, 5, 16\]"),
    (MATRICES, ones(5, 3, 16), r"its shape is \[5, 3, 16\]; must be that of x, \[3, 5, 16\]"),
    (MATRICES, ones(3, 5, 17), "must be that of x"),
    (STATISTICS, ones(15), r"its shape is \[15\]; must be \[3, 5\] or \[3, 5, 1\]"),
    (STATISTICS, ones(3, 1, 5), r"must be \[3, 5\] or \[3, 5, 1\]"),
    (STATISTICS, ones(3, 5, 16), r"must be \[3, 5\] or \[3, 5, 1\]"),
    (STATISTICS, ones(), r"its shape is \[\]; must be \[3, 5\]"),
    (WEIGHTS, ones(8), r"its shape is \[8\]; must be \[16\], or that with the first dimensions of x, \[3, 5, 16\], before it"),
    (WEIGHTS, ones(), r"its shape is \[\]; must be \[16\], or that"),
    (WEIGHTS, ones(5, 16), r"its shape is \[5, 16\]; must be \[16\], or that"),
    (WEIGHTS, ones(1, 3, 5, 16), "must be"),
    (SUMS, ones(15), r"its shape is \[15\]; must have as many elements as \[16\]"),
    (SUMS, ones(3, 5, 16), "must have as many elements"),
    (SUMS, lambda device: torch.ones(32, device=device)[::2], "is not contiguous; must be, because a gradient is added to it"),
]


def test_what_fits():
    for name in SCHEMAS:
        for got, fake in zip(call(name, arguments_of(name)), call(name, arguments_of(name, "meta"))):
            assert (got is None) == (fake is None)
            assert got is None or (got.shape == fake.shape and got.dtype == fake.dtype)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_shapes(name, device):
    tried = 0
    for operands, make, message in WRONG:
        for operand in operands:
            arguments = arguments_of(name, device)
            if operand in arguments:
                arguments[operand] = make(device)
                with pytest.raises(RuntimeError, match=f"^{operand}: .*{message}"):
                    call(name, arguments)
                tried += 1
    assert tried >= 12


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_types(name, device):
    for operand, value in arguments_of(name, device).items():
        if not isinstance(value, torch.Tensor):
            continue
        for dtype in (torch.int32, torch.complex64, torch.bool, torch.float8_e4m3fn):
            wrong = {**arguments_of(name, device), operand: torch.ones_like(value, dtype=dtype)}
            with pytest.raises(RuntimeError, match=f"{operand}: its type is none of float32, bfloat16, float16 and float64"):
                call(name, wrong)
        if operand != "x":
            wrong = {**arguments_of(name, device), operand: value.double()}
            with pytest.raises(RuntimeError, match=f"{operand}: is float64, and x is not; float64 cannot be combined"):
                call(name, wrong)
    with pytest.raises(RuntimeError, match=r": is not float64, and x is; float64 cannot be combined with other types"):
        call(name, {**arguments_of(name, device), "x": torch.ones(*ROWS, COLS, device=device).double()})


@pytest.mark.parametrize("name", SCHEMAS)
def test_devices(name):
    """If an operand is on the meta device, torch calls the fake kernel."""
    for operand, value in arguments_of(name).items():
        if isinstance(value, torch.Tensor) and operand != "x":
            with pytest.raises(RuntimeError, match=f"{operand}: is not on the device of x"):
                call(name, {**arguments_of(name), operand: value.to("meta")})


@pytest.mark.parametrize("name", SCHEMAS)
def test_none_beside_a_meta_tensor(name):
    for operand in {"x", "dy"} & arguments_of(name).keys():
        with pytest.raises(RuntimeError, match=f"{operand}: is None; must be a tensor"):
            call(name, {**arguments_of(name, "meta"), operand: None})


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_what_belongs_together(name, device):
    arguments = arguments_of(name, device)
    for missing, message in (("mean", "rstd: is given without mean"), ("rstd", "mean: is given without rstd"),
                             ("weight", "dweight: is given without a weight")):
        if missing in arguments and message.partition(":")[0] in arguments:
            with pytest.raises(RuntimeError, match=message):
                call(name, {**arguments, missing: None})
    if "weight" in arguments and "bias" in arguments:
        rows = {"weight": torch.ones(3, COLS, device=device), "bias": torch.ones(*ROWS, COLS, device=device)}
        message = "bias: has a row for each element of x's first 2 dimensions, and weight of its first 1; must be the same"
        with pytest.raises(RuntimeError, match=message):
            call(name, {**arguments, **rows})


@pytest.mark.parametrize("masked", [(True, True), (False, True)])
def test_sums_of_samples(masked):
    """A weight with a row for each sample, whose gradient is added to a tensor of the same shape."""
    x, dy, w = leaf(1, 3, 5, 16).detach(), leaf(2, 3, 5, 16).detach(), leaf(3, 3, 16).detach()
    into = torch.ones(3 * 16)
    torch.ops.normjit.rms_norm_backward_into(dy, x, [16], None, w, None, into, 1e-5, 0.0, masked)
    xhat = x.double() * (x.double().square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    assert_close(into.view(3, 16) - 1, (dy.double() * xhat).sum(1))
    with pytest.raises(RuntimeError, match="dweight: its shape is .16.; must have as many elements as .3, 16."):
        torch.ops.normjit.rms_norm_backward_into(dy, x, [16], None, w, None, torch.ones(16), 1e-5, 0.0, masked)


def test_a_row_without_elements():
    x, w = torch.ones(4, 0), torch.ones(0)
    y, _, mean, rstd = torch.ops.normjit.layer_norm(x, None, [0], w, w, 1e-5, 0.0, True)
    assert y.shape == (4, 0) and not mean.any() and not rstd.any()
    gradients = torch.ops.normjit.layer_norm_backward(x, x, [0], mean, rstd, w, w, None, 1e-5, 0.0, [True] * 3)
    assert [tuple(t.shape) for t in gradients] == [(4, 0), (0,), (0,)]


ATEN = {  # what is wrong, and the message
    "weight": (lambda t: t[:8], r"weight: its shape is \[8\]; must be \[16\]"),
    "bias": (lambda t: t[:8], r"bias: its shape is \[8\]; must be \[16\]"),
    "normalized_shape": (lambda _: [8], r"normalized_shape: is \[8\]; must be the last dimensions of input, \[3, 5, 16\]"),
    "grad_out": (lambda t: t[:2], r"grad_out: its shape is \[2, 5, 16\]; must be that of input, \[3, 5, 16\]"),
    "mean": (lambda t: t[:2], r"mean: its shape is \[2, 5, 1\]; must be \[3, 5\] or \[3, 5, 1\]"),
    "rstd": (lambda t: t[:2], r"rstd: its shape is \[2, 5, 1\]; must be \[3, 5\] or \[3, 5, 1\]"),
}


def aten_arguments():
    x, w, b, dy = (t.detach() for t in case(*ROWS, COLS))
    _, mean, rstd = torch.native_layer_norm(x, [COLS], w, b, 1e-5)
    return {"grad_out": dy, "input": x, "normalized_shape": [COLS], "mean": mean, "rstd": rstd, "weight": w, "bias": b,
            "output_mask": [True] * 3}


@pytest.mark.parametrize("operand", ATEN)
def test_torchs_operator(operand):
    """Operands that torch's own kernel would read out of bounds do not reach it."""
    make, message = ATEN[operand]
    arguments = aten_arguments()
    arguments[operand] = make(arguments[operand])
    with normjit.torch.enabled(), pytest.raises(RuntimeError, match=message):
        torch.ops.aten.native_layer_norm_backward(*arguments.values())


@pytest.mark.parametrize("operand", ATEN)
def test_a_wrong_shape_beside_a_type_that_may_be_torchs(operand):
    """Calls with such types are left to torch's kernel, but not if a shape is wrong."""
    make, message = ATEN[operand]
    for other in ("grad_out", "mean", "bias"):
        arguments = aten_arguments()
        arguments[other] = arguments[other].double()
        arguments[operand] = make(arguments[operand])
        with normjit.torch.enabled(), pytest.raises(RuntimeError, match=f"^{message}"):
            torch.ops.aten.native_layer_norm_backward(*arguments.values())
    if operand in ("grad_out", "mean", "rstd"):
        arguments = {name: t[:0] if name in ("input", "grad_out", "mean", "rstd") else t for name, t in aten_arguments().items()}
        arguments[operand] = torch.ones((), dtype=torch.float64)
        with normjit.torch.enabled(), pytest.raises(RuntimeError, match=rf"^{operand}: its shape is \[\]; must be"):
            torch.ops.aten.native_layer_norm_backward(*arguments.values())


def test_what_torch_takes():
    """Operands of other shapes with as many elements are served; a type that torch refuses is refused."""
    arguments = aten_arguments()
    wanted = torch.ops.aten.native_layer_norm_backward(*arguments.values())
    others = {"mean": lambda t: t.flatten(), "rstd": lambda t: t.flatten(), "grad_out": lambda t: t.reshape(15, 16)}
    for operand, make in others.items():
        for layout in (lambda t: t, lambda t: torch.stack([t, t], -1)[..., 0]):
            with normjit.torch.enabled(), Served(1):
                got = torch.ops.aten.native_layer_norm_backward(
                    *{**arguments, operand: layout(make(arguments[operand]))}.values())
            for each, right in zip(got, wanted):
                assert_close(each, right.double())
    message = "grad_out: its type is none of .*nor could normjit::torch_layer_norm_backward" + (".*[Ff]loat" if TORCH_SAYS_WHY else "")
    with normjit.torch.enabled(), pytest.raises(RuntimeError, match=message):
        torch.ops.aten.native_layer_norm_backward(*{**arguments, "grad_out": arguments["grad_out"].int()}.values())


CRASHES = """
import normjit.torch, torch
from normjit.torch import operators
operators.register()
def refused(function, *arguments):
    try:
        function(*arguments)
    except RuntimeError as error:
        assert "weight: its shape is" in str(error) or "normalized_shape: is" in str(error), error
    else:
        raise AssertionError("not refused")
x, dy, w = torch.randn(64, 4096), torch.randn(64, 4096), torch.randn(8)
refused(torch.ops.normjit.rms_norm_backward, dy, x, [4096], None, w, None, 1e-5, 0.0, [True, True])
refused(torch.ops.normjit.rms_norm, x, None, [4096], w, 1e-5, 0.0, True)
refused(torch.ops.normjit.layer_norm, x, None, [8192], None, None, 1e-5, 0.0, True)
"""


def test_what_crashed():
    done = run_program(CRASHES)
    assert done.returncode == 0, done.stderr
