# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""What rowwise() takes and refuses: arguments, traces, and gradients. Values and modes are in torch_formulas_test.py."""
import normjit
import pytest
import torch
from normjit.torch import rowwise


def ones(*shape, **named):
    return torch.ones(*(shape or (6, 8)), **named)


@pytest.mark.parametrize("function", [
    lambda x: torch.rsub(x, 1.0, alpha=1.02), lambda x: torch.ops.aten.sub.Scalar(x, 2.0, 3), lambda x: 1 - x,
    lambda x: torch.ops.aten.add.Scalar(x, 2.0, -3), lambda x: torch.sub(x, x * x, alpha=3), lambda x: torch.add(x, 2, alpha=3)])
def test_alpha(function):
    x = ones() * 1.5
    torch.testing.assert_close(rowwise(function)(x), function(x))
