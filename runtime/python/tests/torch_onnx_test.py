# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy onnx onnxscript onnxruntime
"""torch.onnx.export of modules with normjit's norms: the program runs in ONNX Runtime, and computes what the module
does."""
import normjit.torch
import onnxruntime
import pytest
import torch
from torch_cases import leaf
from torch_modules import InPython

COLS = 8


@normjit.torch.rowwise
def gated(x, gate):
    return torch.nn.functional.silu(gate) * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class Called(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.weight = function, torch.nn.Parameter(leaf(1, COLS).detach())

    def forward(self, x):
        return self.function(x, self.weight)


MAKERS = [lambda: normjit.torch.patch(torch.nn.Sequential(InPython())), lambda: normjit.torch.LayerNorm(COLS),
          lambda: normjit.torch.RMSNorm(COLS), lambda: normjit.torch.LayerNorm(COLS, elementwise_affine=False),
          lambda: Called(normjit.torch.layer_norm),
          lambda: Called(lambda x, w: gated(x, x * w)), lambda: Called(lambda x, w: normjit.torch.formula("softmax")(x=x * w)),
          lambda: Called(lambda x, w: normjit.torch.layer_norm(x, w, weight_offset=1.0, residual=x.sin())[0])]


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("make", MAKERS)
def test_runs_in_onnx_runtime(make, dynamo, tmp_path):
    module, path = make(), str(tmp_path / "module.onnx")
    cols = next((parameter.shape[-1] for parameter in module.parameters()), COLS)
    rows = {"dynamic_shapes": ({0: torch.export.Dim("rows", min=2, max=64)},)} if dynamo else {"dynamic_axes": {"x": {0: "rows"}}}
    torch.onnx.export(module, (leaf(1, 3, cols).detach(),), path, input_names=["x"], dynamo=dynamo, verbose=False, **rows)
    session = onnxruntime.InferenceSession(path)
    for count in (3, 7):
        x = leaf(2, count, cols).detach()
        (found,) = session.run(None, {"x": x.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), module(x).detach())
