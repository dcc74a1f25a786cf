# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""patch() again with other options, and of modules that are parametrized."""
import copy

import normjit.torch
import pytest
import torch
from torch_cases import Served, leaf, passes
from torch_modules import InPython, Plain


def test_patched_again_with_other_options():
    module = normjit.torch.patch(Plain())
    normjit.torch.patch(module, forward=True)
    with Served(2):
        module(leaf(1, 3, 8)).sum().backward()


class Squared(torch.nn.Module):
    def forward(self, weight):
        return weight.square()


@pytest.mark.parametrize("make", [InPython, lambda: torch.nn.RMSNorm(8, eps=1e-6)])
def test_report_of_a_parametrization(make):
    plain = make()
    module = normjit.torch.patch(copy.deepcopy(plain))
    for each in (plain, module):
        torch.nn.utils.parametrize.register_parametrization(each, "weight", Squared())
    x = leaf(1, 3, 8)
    with Served(1):
        ours = passes(module, x)
    torch.testing.assert_close(ours, passes(plain, x))
    (name, _, whose), *_ = normjit.torch.report(module)["norms"]
    assert (name, whose) == ("", "normjit's, by patch()")
    assert normjit.torch.found(module)[0].reason == "its weight is parametrized"
    normjit.torch.unpatch(module)
    assert not any(each.patched for each in normjit.torch.found(module))


@pytest.mark.parametrize("forward", [False, True])
def test_options_of_a_second_call(forward):
    """They hold for all norms of the model: for those that were parametrized since, and for torch's LayerNorm."""
    model = torch.nn.Sequential(InPython(), InPython(), torch.nn.LayerNorm(8))
    own = copy.deepcopy(model)
    normjit.torch.patch(model, forward=not forward)
    for each in (model, own):
        torch.nn.utils.parametrize.register_parametrization(each[0], "weight", Squared())
    normjit.torch.patch(model, forward=forward)
    for module, plain in zip(model, own):
        has_ours = forward or not isinstance(plain, torch.nn.LayerNorm)
        with Served((1 + forward) * has_ours):
            ours = passes(module, leaf(1, 3, 8))
        torch.testing.assert_close(ours, passes(plain, leaf(1, 3, 8)))


def test_a_second_call_of_a_model_with_parametrized_norms_alone():
    module = normjit.torch.patch(InPython())
    torch.nn.utils.parametrize.register_parametrization(module, "weight", Squared())
    assert normjit.torch.patch(module, forward=True) is module
    with pytest.raises(normjit.InvalidArgument, match="no norm that normjit knows"):
        normjit.torch.patch(normjit.torch.unpatch(module))
