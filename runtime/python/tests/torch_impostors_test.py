# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""patch() and modules that are norms only for some inputs. Each computes the same as without patch(), with its own
gradients."""
import copy
import pickle

import normjit.torch
import pytest
import torch
import torch_impostors
from graph_models import Rewritten
from torch_cases import Served, leaf
from torch_impostors import LEFT, REFUSED, WIDTH, ByGlobalSwitch
from torch_modules import InPython as WithoutBias


def passes(module, *shape, seed=1, dtype=torch.float32):
    """Returns y, dx and the gradients of the parameters."""
    x = leaf(seed, *shape, dtype=dtype)
    y = module(x)
    dy = leaf(seed + 1, *y.shape, dtype=y.dtype).detach()
    return y, *torch.autograd.grad(y, [x, *module.parameters()], dy, allow_unused=True)


def assert_same(got, wanted):
    for one, other in zip(got, wanted):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def randomised(module):
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
def test_refused(kind):
    module = kind(WIDTH) if issubclass(kind, torch.nn.LayerNorm) else kind()
    (found,) = normjit.torch.found(module)
    assert found.norm is None and REFUSED[kind] in found.reason, found
    with pytest.raises(normjit.InvalidArgument, match="no norm that normjit knows"):
        normjit.torch.patch(module)


@pytest.mark.parametrize("case", LEFT)
@pytest.mark.parametrize("forward", [False, True])
def test_left_to_the_module(case, forward, monkeypatch):
    """Calls that compute the norm are served. Other calls are left to the module, and counted."""
    kind, shape, change, reason = LEFT[case]
    for place, name in ((kind, "scale"), (kind, "after"), (torch_impostors, "switch")):
        if name in vars(place):
            monkeypatch.setattr(place, name, vars(place)[name])  # pytest restores it at the end
    module = normjit.torch.patch(randomised(kind()), forward=forward)
    plain = normjit.torch.unpatch(copy.deepcopy(module))
    with Served(1 + forward):
        assert_same(passes(module, 5, WIDTH), passes(plain, 5, WIDTH))
    change(module), change(plain)
    with Served(0):
        got = passes(module, *shape)
    assert all(one is other or torch.equal(one, other) for one, other in zip(got, passes(plain, *shape)))
    told = normjit.torch.report(module)["norms"][0][2]
    assert "1 call was left to its own forward" in told and reason in told, told
    assert any(reason in each for each in normjit.torch.report()["left_to_modules"])


@pytest.mark.parametrize("forward", [False, True])
def test_a_global_variable_that_changed_before_compilation(forward, monkeypatch):
    """A compiled graph has the gradient of what the module computes when it is traced. Copies know the variable."""
    module = pickle.loads(pickle.dumps(normjit.torch.patch(randomised(ByGlobalSwitch()), forward=forward)))
    for switch in (True, False):
        monkeypatch.setattr(torch_impostors, "switch", switch)
        torch.compiler.reset()
        graphs = Rewritten("none")
        assert_same(passes(torch.compile(module, fullgraph=True, backend=graphs), 5, WIDTH), passes(module, 5, WIDTH))
        assert any("normjit" in each for each in graphs.targets()) == switch


@pytest.mark.parametrize("bias", [False, True, 0.0, "none"])
def test_a_bias_that_is_a_setting(bias):
    """A module may keep the argument `bias` of its constructor under this name."""
    module = randomised(WithoutBias())
    module.bias = bias
    plain = copy.deepcopy(module)
    for forward in (False, True):
        patched = normjit.torch.patch(copy.deepcopy(module), forward=forward, verify=True)
        y = patched(x := leaf(1, 5, WIDTH))
        y.backward(dy := leaf(2, 5, WIDTH).detach())
        assert_same((y, x.grad, patched.weight.grad), passes(plain, 5, WIDTH))
        compiled = torch.compile(patched, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(torch.autograd.grad(compiled(x), x, dy)[0], x.grad)
    assert normjit.torch.report(patched, rows=5)["norms"][0][2] == "normjit's, by patch()"
