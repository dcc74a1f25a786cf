# SPDX-License-Identifier: Apache-2.0
"""Modules that are norms, and others that look like one."""
import torch


class Gated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.ones(8)), 1e-6

    def forward(self, x, gate):
        return torch.nn.functional.rms_norm(x, (8,), self.weight, self.eps) * gate


class Scaled(Gated):
    def forward(self, x):
        return x * self.weight


class Plain(Gated):
    def forward(self, x):
        return torch.nn.functional.rms_norm(x, (8,), self.weight, self.eps)


class InPython(Gated):
    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps))


class ThreeVectors(Plain):
    def __init__(self):
        super().__init__()
        self.bias, self.v = (torch.nn.Parameter(torch.zeros(8)) for _ in range(2))


class MaybeGated(Plain):
    def forward(self, x, gate=None):
        y = super().forward(x)
        return y if gate is None else y * gate
