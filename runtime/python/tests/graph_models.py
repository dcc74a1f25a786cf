# SPDX-License-Identifier: Apache-2.0
"""Models for the tests of graphs, some of them random, a backend that runs their rewritten graphs without a compiler,
and what the tests share."""
import contextlib
import math
import random

import pytest
import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from normjit.torch import GraphPass, graph, graph_operator
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table
from torch.nn import functional

COLS = 16


class Rewritten:
    """A backend that gives GraphPass the graphs that Inductor would get, and runs them operator by operator."""

    def __init__(self, take="all"):
        self.graphs, self.take = [], take

    def __call__(self, module, inputs):
        return aot_autograd(fw_compiler=self._compile, bw_compiler=self._compile, decompositions=select_decomp_table,
                            partition_fn=min_cut_rematerialization_partition)(module, inputs)

    def _compile(self, module, inputs):
        GraphPass(self.take)(module.graph)
        module.graph.lint()
        module.recompile()
        self.graphs.append(module)
        return make_boxed_func(module.forward)

    def targets(self):
        """Returns the names of the operators in all graphs."""
        return [str(node.target) for module in self.graphs for node in module.graph.nodes if node.op == "call_function"]


class Model(torch.nn.Module):
    """A module that calls function(x, module) for x of [B, T, N]. It has layers and a weight that the function may
    use."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, COLS))
        self.linear, self.wide = torch.nn.Linear(COLS, COLS), torch.nn.Linear(COLS, 3 * COLS)
        self.layer_norm, self.plain = torch.nn.LayerNorm(COLS), torch.nn.LayerNorm(COLS, elementwise_affine=False)
        self.rms_norm = torch.nn.RMSNorm(COLS, eps=1e-6)

    def forward(self, x):
        return self.function(self, x)


def rms(x, weight, eps=1e-6):
    wide = x.double() if x.dtype == torch.float64 else x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def block(m, x):
    h = x + m.linear(m.rms_norm(x))
    return h + functional.gelu(m.linear(m.layer_norm(h)))


def llama(m, x):
    h = x + m.linear(rms(x, m.weight))
    return m.linear(rms(h, 1 + m.weight)) + h


def gated(m, x):
    h, z, _ = m.wide(x).chunk(3, -1)
    return rms(h, m.weight) * functional.silu(z)


def modulated(m, x):
    scale, shift, gate = m.wide(x[:, 0]).chunk(3, -1)
    return x + gate[:, None] * (m.plain(x) * (1 + scale[:, None]) + shift[:, None])


def softmaxes(m, x):
    return functional.softmax(m.linear(x), -1) + functional.log_softmax(x, -1)


def flattened(m, x):
    return m.layer_norm(m.linear(x.reshape(-1, COLS))).view(x.shape) * torch.tanh(x)


def slices_of_packed(m, x):
    q, k, v = m.wide(x).chunk(3, -1)
    return m.rms_norm(q) * m.layer_norm(k) + v


def clipped(m, x):
    h = m.linear(x)
    return h.clamp(min=-1.0) / h.abs().amax(-1, keepdim=True).clamp(min=1e-3) + h.var(-1, keepdim=True)


def half_rotated(x):
    return torch.cat([-x[..., x.shape[-1] // 2:], x[..., : x.shape[-1] // 2]], -1)


def rotary(m, x):
    """A norm of the heads of queries, followed by a rotation by the angles of their tokens."""
    q = m.wide(x).unflatten(-1, (3, COLS)).contiguous()
    angles = torch.arange(x.shape[0] * x.shape[1], dtype=x.dtype).view(*x.shape[:2], 1, 1) * m.weight.detach()
    q = rms(q, m.weight)
    return q * angles.cos() + half_rotated(q) * angles.sin()


def attended(m, x):
    """Attention, which exchanges tokens and heads between the norm of queries and their rotation by angles that the batch
    shares."""
    angles = torch.arange(x.shape[1], dtype=x.dtype).view(1, 1, -1, 1) * m.weight.detach()
    q = rms(m.wide(x).unflatten(-1, (3, COLS)), m.weight).transpose(1, 2)
    q = q * angles.cos() + half_rotated(q) * angles.sin()
    return functional.scaled_dot_product_attention(q, q, q)


MODELS = {each.__name__: each for each in
          (block, llama, gated, modulated, softmaxes, flattened, slices_of_packed, clipped, rotary, attended)}


STEPS = [
    lambda m, x, a, b, r: a + b, lambda m, x, a, b, r: a * b, lambda m, x, a, b, r: a - r,
    lambda m, x, a, b, r: a * torch.rsqrt(r * r + 0.5), lambda m, x, a, b, r: a * m.weight,
    lambda m, x, a, b, r: a + m.linear.bias, lambda m, x, a, b, r: functional.silu(a), lambda m, x, a, b, r: torch.tanh(a),
    lambda m, x, a, b, r: torch.exp(-a.abs()), lambda m, x, a, b, r: functional.gelu(a),
    lambda m, x, a, b, r: m.layer_norm(a), lambda m, x, a, b, r: rms(a, m.weight), lambda m, x, a, b, r: m.linear(a),
    lambda m, x, a, b, r: functional.softmax(a, -1), lambda m, x, a, b, r: a.reshape(-1, COLS).mul(2).view(x.shape),
    lambda m, x, a, b, r: a * x[:, :1], lambda m, x, a, b, r: a.transpose(0, 1).contiguous().transpose(0, 1),
    lambda m, x, a, b, r: torch.maximum(a, b), lambda m, x, a, b, r: a.relu(), lambda m, x, a, b, r: a.flip(-1),
    lambda m, x, a, b, r: a.cumsum(1) * 0.1, lambda m, x, a, b, r: a.float().to(a.dtype),
    lambda m, x, a, b, r: a / (1 + b * b), lambda m, x, a, b, r: m.plain(a * b),
    lambda m, x, a, b, r: half_rotated(a) * m.weight + b, lambda m, x, a, b, r: half_rotated(m.layer_norm(a) + x)]
HEADS = [  # of a step with values of [B, T, H, N], a value and the factors of a rotation
    *[lambda a, b, r, i=i, j=j: a.transpose(i, j) for i, j in ((1, 2), (1, 2), (0, 1), (0, 2))],
    *[lambda a, b, r: rms(a, 1.0)] * 2, lambda a, b, r: functional.layer_norm(a, a.shape[-1:]),
    *[lambda a, b, r: a * r.cos() + half_rotated(a) * r.sin()] * 2, lambda a, b, r: half_rotated(-a) + b, lambda a, b, r: a * r.cos(),
    lambda a, b, r: a + b * 0.5, lambda a, b, r: a.tanh(), lambda a, b, r: a.transpose(1, 2).contiguous().transpose(1, 2),
    lambda a, b, r: functional.scaled_dot_product_attention(a, a, a)]


def random_heads(seed):
    """Returns a function of [B, T, H, N] and weights of [N], with permutations, norms and rotations."""
    source = random.Random(seed)
    steps = source.choices(HEADS, k=source.randint(4, 12))
    axes = source.choices([(0, 1, 2), (1,), (2,), (0, 1), (0,), ()], k=len(steps))  # of each factor

    def function(x, weight):
        values = [x]
        for step, along in zip(steps, axes):
            a, b = values[-1], values[len(values) // 2]
            sizes = [a.shape[i] if i in along else 1 for i in range(3)]
            factor = torch.arange(math.prod(sizes), dtype=a.dtype).view(*sizes, 1) * weight
            values.append(step(a, b if b.shape == a.shape else a, factor))
        return values[-1] + 0, values[len(values) // 2] * 2

    return function


SUMS = [
    lambda m, x, a, b, r: a.mean(-1, keepdim=True), lambda m, x, a, b, r: (a * b).sum(-1, keepdim=True),
    lambda m, x, a, b, r: a.amax(-1, keepdim=True), lambda m, x, a, b, r: a.var(-1, keepdim=True),
    lambda m, x, a, b, r: r * 0.5 + 1, lambda m, x, a, b, r: a.square().mean(-1)[..., None],
    lambda m, x, a, b, r: r.sigmoid()]


def random_model(seed):
    """Returns a function of a Model and x that combines random row-wise operations, views and layers."""
    choose = random.Random(seed)
    plan = [(choose.choice(SUMS) if choose.random() < 0.3 else choose.choice(STEPS), *(choose.random() for _ in range(3)))
            for _ in range(choose.randint(4, 16))]

    def function(m, x):
        full, rows = [x, m.linear(x)], [x.mean(-1, keepdim=True)]
        for step, a, b, r in plan:
            given = full[int(a * len(full))], full[int(b * len(full))], rows[int(r * len(rows))]
            made = step(m, x, *given)
            (rows if made.shape[-1] == 1 else full).append(made)
        return full[-1] + full[-2] * rows[-1]

    return function


@pytest.fixture(autouse=True)
def alone():
    torch._dynamo.reset()
    graph._reported.clear()
    graph_operator.calls.clear()


def made(function, dtype=torch.float64, shape=(3, 5, COLS)):
    torch.manual_seed(0)
    return Model(function).to(dtype), torch.randn(shape, dtype=torch.float64).to(dtype)


def results(function, model, x, context=contextlib.nullcontext):
    """Returns y, and the gradients of x and the parameters."""
    model.zero_grad()
    x = x.clone().requires_grad_()
    with context():
        y = function(x)
    wide = torch.promote_types(y.dtype, torch.float32)
    (y.to(wide) * torch.linspace(-1, 1, y.numel(), dtype=wide).view(y.shape)).sum().backward()
    return y.detach(), x.grad, *(torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters())


def assert_near(got, wanted, bound):
    for one, other in zip(got, wanted):
        assert one.shape == other.shape and one.dtype == other.dtype
        assert float((one.double() - other.double()).norm()) <= bound * (float(other.double().norm()) + 1e-6)
