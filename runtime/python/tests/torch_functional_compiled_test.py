# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""normjit.torch.layer_norm and rms_norm in the graphs of torch.compile."""
import normjit.torch
import pytest
import torch
from processes import run_program
from torch.utils.checkpoint import checkpoint
from torch_cases import NORMS, Served, assert_close, assert_gradients, case, leaf, reference


@pytest.mark.parametrize("norm", NORMS)
def test_compiled(norm):
    """The graph contains our operator, without a break."""
    x, w, b, dy = case(6, 70)
    residual, dh = leaf(7, 6, 70), leaf(8, 6, 70).detach()
    compiled = torch.compile(
        lambda *t: NORMS[norm](t[0] * 2, t[1], t[2], residual=t[3]), backend="aot_eager", fullgraph=True, dynamic=True
    )
    with Served(1):
        torch.autograd.backward(compiled(x, w, b, residual), (dy, dh))
    h = (2 * x + residual).detach()
    assert_close(residual.grad, reference(h, w, b, dy, norm=norm)[0] + dh)


@pytest.mark.parametrize("norm", NORMS)
def test_compiled_with_one_tensor_in_two_places(norm):
    """Dynamo takes no tensor twice as an argument of an autograd.Function."""
    x, w, _, dy = case(6, 70)
    compiled = torch.compile(lambda x, w: NORMS[norm](x, w, w, residual=x), backend="aot_eager", fullgraph=True)
    made = compiled(x, w)
    with Served(1):
        torch.autograd.backward(made, (dy, dy))
    dh, dgamma, dbeta = reference(2 * x, w, w, dy, norm=norm)
    assert_close(x.grad, 2 * (dh + dy))
    assert_close(w.grad, dgamma + dbeta if norm == "layernorm" else dgamma)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("with_residual", [False, True])
def test_compiled_with_what_is_written_afterwards(norm, with_residual):
    """In compiled code nothing notices that what was saved for the backward pass is written, so it must be another
    tensor."""
    def function(x, w):
        h, residual = x * 1, x * 0 if with_residual else None
        y = NORMS[norm](h, w, None, residual=residual)
        y, h = y if with_residual else (y, h)
        return h.add_(y)

    x, w, _, dy = case(6, 70)
    torch.compile(function, backend="aot_eager", fullgraph=True)(x, w).backward(dy)
    dx, dgamma, _ = reference(x, w, None, dy, norm=norm)
    assert_close(x.grad, dx + dy)
    assert_close(w.grad, dgamma)


@pytest.mark.parametrize("norm", NORMS)
def test_compiled_vmap(norm):
    x, w, b, dy = case(6, 5, 70)
    compiled = torch.compile(torch.vmap(NORMS[norm], (1, None, None), 1), backend="aot_eager", fullgraph=True)
    compiled(x, w, b).backward(dy)
    assert_gradients(norm, x, w, b, dy)


def test_compiled_by_inductor_in_a_checkpoint():
    """A sum with an offset of 0 would be dropped, and then the partitioner of torch 2.15 fails."""
    x, w, dy = leaf(1, 6, 64), leaf(2, 64), torch.ones(6, 64)
    compiled = torch.compile(lambda x: checkpoint(normjit.torch.rms_norm, x, w, use_reentrant=False))
    compiled(x).backward(dy)
    assert_gradients("rmsnorm", x, w, None, dy)


def test_first_call_of_a_process_may_be_compiled():
    done = run_program("import torch, normjit.torch\n"
                       "compute = torch.compile(lambda x, w: normjit.torch.rms_norm(x, w), backend='aot_eager', fullgraph=True)\n"
                       "x, w = torch.randn(9, 64, requires_grad=True), torch.ones(64, requires_grad=True)\n"
                       "compute(x, w).sum().backward()\n"
                       "assert w.grad.any()")
    assert done.returncode == 0, done.stderr
