# SPDX-License-Identifier: Apache-2.0
# needs: torch
"""normjit.torch.prepare(): kernels before the first step."""
import pytest
import torch

import normjit.torch
from torch_cases import Served
from torch_gates import NormThenGate

CALLS = 3  # forward and backward, and inference


@pytest.fixture
def model():
    return torch.nn.Sequential(normjit.torch.RMSNorm(64), torch.nn.Linear(64, 7), normjit.torch.RMSNorm(7))


def test_prepare(model):
    with Served(2 * CALLS):
        assert normjit.torch.prepare(model) == 2
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(normjit.InvalidArgument, match="no norm that normjit knows"):
        normjit.torch.prepare(torch.nn.Linear(2, 2))


def test_rows(model):
    shapes = []
    for norm in (model[0], model[2]):
        norm.register_forward_pre_hook(lambda _, inputs: shapes.append(tuple(inputs[0].shape)))
    with Served(2 * 2 * CALLS):
        assert normjit.torch.prepare(model, rows=[1, 33]) == 2
    assert set(shapes) == {(1, 64), (33, 64), (1, 7), (33, 7)}
    for rows in (0, 1.5, [4, -1], "many"):
        with pytest.raises(normjit.InvalidArgument, match="^rows: .*; must be a number of at least 1"):
            normjit.torch.prepare(model, rows=rows)


def test_prepare_with_a_residual():
    with Served(CALLS + CALLS):  # with and without it
        assert normjit.torch.prepare(normjit.torch.RMSNorm(64), residual=True) == 1


def test_prepare_with_a_gate():
    assert normjit.torch.prepare(normjit.torch.patch(torch.nn.Sequential(NormThenGate())), rows=5) == 1


class OfImages(torch.nn.LayerNorm):
    """The LayerNorm2d of timm: normalises the channels of images."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class InF32(torch.nn.LayerNorm):
    def forward(self, x):
        weight, bias = self.weight.float(), self.bias.float()
        return torch.nn.functional.layer_norm(x.float(), self.normalized_shape, weight, bias, self.eps).to(x.dtype)


def test_layer_norms_with_another_forward():
    model = torch.nn.Sequential(OfImages(64), InF32(64)).bfloat16()
    with normjit.torch.enabled(devices="cpu"), Served(2):
        assert normjit.torch.prepare(model, rows=5) == 2
