# SPDX-License-Identifier: Apache-2.0
"""Modules that are norms with a gate, and others that look like one."""
import torch
from torch.nn import functional

WIDTH = 8


class NormThenGate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.ones(WIDTH)), 1e-6

    def normed(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps))

    def forward(self, x, gate):
        return self.normed(x) * functional.silu(gate)


class GateThenNorm(NormThenGate):
    def forward(self, x, gate=None):
        return self.normed(x if gate is None else x * functional.silu(gate))


class Sigmoid(NormThenGate):
    def forward(self, x, gate):
        return self.normed(x) * torch.sigmoid(gate)


class SigmoidThenNorm(NormThenGate):
    def forward(self, x, gate):
        return self.normed(x * torch.sigmoid(gate))


class ZeroCentred(NormThenGate):
    def forward(self, x, gate):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * (1 + self.weight) * functional.silu(gate)


class Groups(NormThenGate):
    def __init__(self):
        super().__init__()
        self.group_size = 4

    def forward(self, x, gate):
        h = (x * functional.silu(gate)).unflatten(-1, (-1, self.group_size))
        return self.weight * (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + self.eps)).flatten(-2)


class GroupsThenGate(NormThenGate):
    def __init__(self):
        super().__init__()
        self.groups = 4

    def forward(self, x, gate):
        h = x.unflatten(-1, (self.groups, -1))
        return self.weight * (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + self.eps)).flatten(-2) * functional.silu(gate)


SERVED = {NormThenGate: "gated_rmsnorm", GateThenNorm: "rmsnorm_of_gated", Sigmoid: "gated_rmsnorm (sigmoid)",
          SigmoidThenNorm: "rmsnorm_of_gated (sigmoid)", ZeroCentred: "gated_rmsnorm", Groups: "rmsnorm_of_gated",
          GroupsThenGate: "gated_rmsnorm"}


class Gelu(NormThenGate):
    def forward(self, x, gate):
        return self.normed(x) * functional.gelu(gate)


class Linear(NormThenGate):
    def forward(self, x, gate):
        return self.normed(x) * gate


class Shifted(NormThenGate):
    def forward(self, x, gate):
        return self.normed(x) * functional.silu(gate + 1e-2)


class Added(NormThenGate):
    def forward(self, x, gate):
        return self.normed(x) * functional.silu(gate) + 1e-2 * gate


class Swapped(NormThenGate):
    """This would be a norm if the gate came before x."""

    def forward(self, gate, x):
        return self.normed(x) * functional.silu(gate)


class Both(NormThenGate):
    def forward(self, x, gate):
        return self.normed(x * functional.silu(gate)) * functional.silu(gate)


class LayerNormed(NormThenGate):
    def forward(self, x, gate):
        return functional.layer_norm(x, (WIDTH,), self.weight, None, self.eps) * functional.silu(gate)


class DetachedGate(NormThenGate):
    def forward(self, x, gate):
        return self.normed(x) * functional.silu(gate.detach())


class DetachedStatistics(NormThenGate):
    def forward(self, x, gate):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps).detach() * self.weight * functional.silu(gate)


class ClampedGate(NormThenGate):
    def forward(self, x, gate):
        return self.normed(x) * functional.silu(gate.clamp(-100, 100))


class InPlaceOnGate(NormThenGate):
    def forward(self, x, gate):
        with torch.no_grad():
            gate.mul_(2)
        return super().forward(x, gate)


class OneGateForAll(NormThenGate):
    def forward(self, x, gate):
        return self.normed(x) * functional.silu(gate).mean(-1, keepdim=True)


class IfGateRequiresGrad(NormThenGate):
    def forward(self, x, gate):
        return super().forward(x, gate) * (1 if gate.requires_grad else 2)


class OtherGroups(Groups):
    """Normalises in groups whose size is in no attribute."""

    def __init__(self):
        super().__init__()
        self.group_size, self.half = WIDTH, 0.5

    def forward(self, x, gate):
        h = (x * functional.silu(gate)).unflatten(-1, (-1, int(self.group_size * self.half)))
        return self.weight * (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + self.eps)).flatten(-2)


UNKNOWN = "with a gate: computes no norm with a gate that normjit knows"
REFUSED = {Gelu: UNKNOWN, Linear: UNKNOWN, Shifted: UNKNOWN, Added: UNKNOWN, Swapped: UNKNOWN, Both: UNKNOWN,
           LayerNormed: UNKNOWN, DetachedGate: "its gradient of its gate is another",
           DetachedStatistics: "its gradient of x is another", ClampedGate: "around 10000",
           InPlaceOnGate: "writes to its input", OneGateForAll: UNKNOWN, OtherGroups: UNKNOWN,
           IfGateRequiresGrad: UNKNOWN}
