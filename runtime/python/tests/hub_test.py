# SPDX-License-Identifier: Apache-2.0
# needs: torch transformers kernels
"""tools/hub_kernel.py writes a folder that Hugging Face's `kernels` loads, whose layers kernelize() puts into models."""
import copy
import os
import pathlib
import subprocess
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import kernels
import normjit.torch
import pytest
import torch
import transformers
from kernels import Mode

ROOT = pathlib.Path(__file__).parents[3]
TINY = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 64}
MODELS = {  # the model, and the layer that replaces each of its norm classes
    "llama": lambda: (transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY)), {"LlamaRMSNorm": "RMSNorm"}),
    "qwen3": lambda: (transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**TINY, head_dim=16)),
                      {"Qwen3RMSNorm": "RMSNorm"}),
    "gemma": lambda: (transformers.GemmaForCausalLM(transformers.GemmaConfig(**TINY, head_dim=16)),
                      {"GemmaRMSNorm": "RMSNormZeroCentered"}),
    "gpt2": lambda: (transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=2, n_embd=64, n_head=4, vocab_size=100, n_positions=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)),
        {"LayerNorm": "LayerNorm"}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("hub") / "kernel"
    subprocess.run([sys.executable, ROOT / "tools/hub_kernel.py", made], check=True, stdout=subprocess.DEVNULL)
    return made


def kernelized(model, classes, folder, mode=Mode.TRAINING):
    """Gives the norms of these classes normjit's layers, and returns how many norms got one."""
    norms = [module for module in model.modules() if type(module).__name__ in classes]
    for cls in {type(module) for module in norms}:
        if not hasattr(cls, "kernel_layer_name"):  # with some versions of kernels, transformers marks it
            kernels.replace_kernel_forward_from_hub(cls, classes[cls.__name__])
    layers = {norm.kernel_layer_name: classes[type(norm).__name__] for norm in norms}
    mapping = {name: {"cpu": {mode: kernels.LocalLayerRepository(folder, layer_name=layer)}} for name, layer in layers.items()}
    with kernels.use_kernel_mapping(mapping, inherit_mapping=False):
        kernels.kernelize(model, mode=mode, device="cpu", use_fallback=False)
    return sum("hub" in norm.forward.__func__.__module__ for norm in norms)


def randomised(model):
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn_like(parameter)
    return model


def step(model):
    tokens = torch.arange(32).reshape(2, 16) * 7 % 100
    model.zero_grad()
    made = model(input_ids=tokens, labels=tokens)
    made.loss.backward()
    return {"logits": made.logits.detach(), **{name: p.grad.clone() for name, p in model.named_parameters()}}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype, allowed", [(torch.float32, 2e-5), (torch.bfloat16, 6e-2)])
def test_models(name, dtype, allowed, folder):
    torch.manual_seed(1)
    model, classes = MODELS[name]()
    model = randomised(model).to(dtype)
    before = step(model)
    assert kernelized(model, classes, folder) >= 5
    after = step(model)
    for key, wanted in before.items():
        assert after[key].dtype == wanted.dtype
        error = (after[key].double() - wanted.double()).norm() / wanted.double().norm()
        assert error <= allowed, key


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("patched", [False, True])
def test_report(name, patched, folder):
    """A norm that has a layer of normjit's counts as normjit's, also where patch() came before."""
    model, classes = MODELS[name]()
    if patched:
        normjit.torch.patch(model, forward=True)
    count = kernelized(model, classes, folder)
    for each in (model, copy.deepcopy(model)):
        assert [whose for *_, whose in normjit.torch.report(each)["norms"]] == ["normjit's, by kernelize()"] * count
        assert {norm.reason for norm in normjit.torch.found(each)} == {"is normjit's already, by kernelize()"}
    assert normjit.torch.patch(model, strict=False) is model


def test_a_gated_norm(folder):
    norms = transformers.models.qwen3_next.modeling_qwen3_next
    norm = randomised(norms.Qwen3NextRMSNormGated(48)).double()
    x, gate, dy = (torch.randn(3, 5, 48, requires_grad=True) for _ in range(3))
    wanted = torch.autograd.grad(norm.float()(x, gate), (x, gate, norm.weight), dy), norm(x, gate)
    assert kernelized(norm, {"Qwen3NextRMSNormGated": "RMSNormGated"}, folder) == 1
    got = torch.autograd.grad(norm(x, gate), (x, gate, norm.weight), dy), norm(x, gate)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    norm.activation = "gelu"
    with pytest.raises(NotImplementedError, match="gelu"):
        norm(x, gate)


def test_types_of_results(folder):
    layers = kernels.get_local_kernel(folder).layers
    norm = transformers.models.llama.modeling_llama.LlamaRMSNorm(48)  # an f32 weight
    x = torch.randn(4, 48, dtype=torch.bfloat16)
    wanted = norm(x)
    got = layers.RMSNorm.forward(norm, x)
    assert got.dtype == wanted.dtype == torch.float32
    torch.testing.assert_close(got, wanted, rtol=2**-7, atol=0)


@pytest.mark.parametrize("affine", [True, False])
def test_several_dimensions(affine, folder):
    norm = randomised(torch.nn.LayerNorm((3, 16), elementwise_affine=affine))
    x = torch.randn(2, 5, 3, 16)
    torch.testing.assert_close(kernels.get_local_kernel(folder).layers.LayerNorm.forward(norm, x), norm(x))


def test_compiles(folder):
    torch.manual_seed(1)
    model, classes = MODELS["llama"]()
    wanted = step(model)
    assert kernelized(model, classes, folder, Mode.TRAINING | Mode.TORCH_COMPILE) == 5
    got = step(torch.compile(model, fullgraph=True, backend="aot_eager"))
    for key, each in wanted.items():
        torch.testing.assert_close(got[key.removeprefix("_orig_mod.")] if key in got else got["_orig_mod." + key], each,
                                   rtol=1e-3, atol=1e-5)


def test_the_folder_needs_no_installed_normjit(folder):
    code = ("import importlib.util, pathlib, sys, kernels\n"
            "assert importlib.util.find_spec('normjit') is None\n"
            "layers = kernels.get_local_kernel(pathlib.Path(sys.argv[1])).layers\n"
            "import normjit\n"
            "print(normjit.__file__)")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", code, folder], env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert pathlib.Path(done.stdout.strip()).is_relative_to(folder)


def test_the_builder_reads_it(folder):
    from kernels._rust import Build, Metadata

    assert [str(each) for each in Build.open(folder).general.backends] == ["cpu", "cuda"]
    for backend in ("cpu", "cuda"):
        assert str(Metadata.read_from_file(folder / f"build/torch-{backend}/metadata.json").backend.backend_type) == backend


def test_refusals(tmp_path):
    script = ROOT / "tools/hub_kernel.py"
    (tmp_path / "there").write_text("")
    for words, message in ((["--package", tmp_path, tmp_path / "new"], "has no libnormjit.so"), ([tmp_path], "is there already")):
        done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True)
        assert done.returncode == 1 and message in done.stderr
