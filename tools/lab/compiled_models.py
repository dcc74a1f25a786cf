#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures training steps of Hugging Face models with random weights: eager, patched, compiled, compiled by normjit.

    PYTHONPATH=build/python compiled_models.py --device cuda --json models.json [llama qwen3 gpt2 dit ...: CONFIGS]
    PYTHONPATH=build/python compiled_models.py --small --rounds 3                                # any CPU

Contenders take turns, step by step, in random order. Times are medians, with the 20th and 80th percentiles in brackets.
A step is a forward pass, a backward pass and a fused AdamW. "first" is the time of the first step from empty caches,
including compilation. "forward" means patch(forward=True). "loss" and "gradients" are relative distances from the same
step in double precision; for gradients, in the 2-norm. "regions" says how many of the regions with a row reduction
normjit took. "kernels" says how many kernels forward and backward launch on a GPU, and how many are normjit's."""
import argparse
import contextlib
import copy
import datetime
import importlib.util
import inspect
import json
import os
import random
import statistics
import tempfile
import time

import normjit.torch
import torch
from torch import nn
from torch.nn import functional

BATCH, TOKENS = 4, 2048
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
         "n_embd": 64, "n_head": 4, "vocab_size": 128, "num_hidden_layers": 2, "n_layer": 2, "linear_num_key_heads": 2,
         "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "num_experts": 2,
         "num_experts_per_tok": 1, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
USUAL = {"vocab_size": 32768, "num_hidden_layers": 4, "use_cache": False}
CONFIGS = {  # by kind: the names of the configuration and of the model, and sizes
    "llama": ("LlamaConfig", "LlamaForCausalLM", {
        "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {
        "hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {
        "n_embd": 1024, "n_head": 16, "n_layer": 8, "vocab_size": 32768, "n_positions": TOKENS, "resid_pdrop": 0.0,
        "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
    "qwen3_next": ("Qwen3NextConfig", "Qwen3NextForCausalLM", {
        "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "num_hidden_layers": 2,
        "layer_types": ["linear_attention", "full_attention"], "intermediate_size": 5120, "mlp_only_layers": [0, 1],
        "num_experts": 0}),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", {
        "hidden_size": 2304, "intermediate_size": 9216, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", {
        "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}),
    "olmo2": ("Olmo2Config", "Olmo2ForCausalLM", {
        "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 16, "num_key_value_heads": 16}),
    "cohere": ("CohereConfig", "CohereForCausalLM", {
        "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 16, "num_key_value_heads": 8}),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {
        "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 16, "max_position_embeddings": TOKENS}),
    "phi": ("PhiConfig", "PhiForCausalLM", {
        "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "resid_pdrop": 0.0}),
}


class Modulated(nn.Module):
    """A block of a diffusion transformer: LayerNorms without weights, whose scale, shift and gate come from a condition
    (adaLN-Zero; Peebles, Xie, "Scalable Diffusion Models with Transformers", 2023)."""

    def __init__(self, width, head):
        super().__init__()
        self.head, self.modulation = head, nn.Linear(width, 6 * width)
        self.norms = nn.ModuleList(nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, condition):
        a, b, c, d, e, f = self.modulation(functional.silu(condition))[:, None].chunk(6, -1)
        h = self.norms[0](x) * (1 + a) + b
        q, k, v = (t.unflatten(-1, (-1, self.head)).transpose(1, 2) for t in self.qkv(h).chunk(3, -1))
        x = x + c * self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        h = self.norms[1](x) * (1 + d) + e
        return x + f * self.down(functional.gelu(self.up(h), approximate="tanh"))


class Diffusion(nn.Module):
    def __init__(self, width, layers, head):
        super().__init__()
        self.width = width
        self.blocks = nn.ModuleList(Modulated(width, head) for _ in range(layers))

    def forward(self, x, condition):
        for block in self.blocks:
            x = block(x, condition)
        return x.square().mean()


def keep_linear_attention_out_of_graphs():
    """Makes Qwen3-Next's linear attention transformers' own PyTorch code, which torch.compile leaves as it is, as it
    leaves the kernels of flash-linear-attention, which take no f64 and which some releases of Triton miscompile."""
    from transformers.models.qwen3_next import modeling_qwen3_next as place

    place.torch_chunk_gated_delta_rule = torch.compiler.disable(inspect.unwrap(place.torch_chunk_gated_delta_rule))


def make(kind, small):
    """Returns a model in f32, and a function from (batch, tokens) to the arguments of a step, whose result has the
    loss."""
    torch.manual_seed(0)
    if kind == "dit":
        model = Diffusion(64 if small else 1152, 2 if small else 6, 16 if small else 72)
        return model, lambda batch, tokens: {"x": torch.randn(batch, tokens, model.width),
                                             "condition": torch.randn(batch, model.width)}
    import transformers

    if kind == "qwen3_next":
        keep_linear_attention_out_of_graphs()
    config_name, model_name, sizes = CONFIGS[kind]
    sizes = {**USUAL, **sizes}
    if small:
        sizes.update({key: SMALL[key] for key in sizes if key in SMALL})
    config = getattr(transformers, config_name)(**sizes)
    for key, token in {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 1}.items():
        setattr(config, key, token)
    model = getattr(transformers, model_name)(config)
    for module in model.modules():  # weights look as if trained
        if "norm" in type(module).__name__.lower() and getattr(module, "weight", None) is not None:
            nn.init.normal_(module.weight, float(module.weight.detach().mean()), 0.1)

    def arguments(batch, tokens):
        ids = torch.randint(config.vocab_size, (batch, tokens))
        return {"input_ids": ids, "labels": ids, "use_cache": False}

    return model, arguments


def with_ligers_norms(model):
    """Returns the model with Liger's norms in place of its own."""
    from liger_kernel.transformers import LigerLayerNorm, LigerRMSNorm

    for module in list(model.modules()):
        for name, norm in list(module.named_children()):
            kind, weight = type(norm).__name__, getattr(norm, "weight", None)
            if weight is None or not (kind.endswith("RMSNorm") or isinstance(norm, nn.LayerNorm)):
                continue
            if kind.startswith(("Gemma", "Qwen3Next")) and hasattr(norm, "eps"):  # multiplies by 1 + weight, in f32
                new = LigerRMSNorm(weight.numel(), eps=norm.eps, offset=1.0, casting_mode="gemma")
            elif kind.endswith("RMSNorm"):
                new = LigerRMSNorm(weight.numel(), eps=norm.variance_epsilon)
            else:
                new = LigerLayerNorm(weight.numel(), eps=norm.eps)
            new.to(weight.device, weight.dtype).load_state_dict(norm.state_dict())
            setattr(module, name, new)
    return model


def loss_of(result):
    return result if isinstance(result, torch.Tensor) else result.loss


class Contender:
    def __init__(self, name, model, options, normjits=False, forward=False, backend=None):
        self.name, self.options, self.normjits = name, options, normjits
        self.model = normjit.torch.patch(model, forward=forward, strict=False) if normjits else model
        self.call = self.model if backend is None else torch.compile(self.model, backend=backend, mode=options.mode)
        fused = {"fused": True} if options.device == "cuda" else {}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, **fused)
        self.times = []

    def context(self):
        """Returns the context in which the contender runs. Entering it takes time that does not belong to a step."""
        return normjit.torch.enabled() if self.normjits else contextlib.nullcontext()

    def gradients(self, arguments):
        self.optimizer.zero_grad(set_to_none=True)
        loss = loss_of(self.call(**arguments))
        loss.backward()
        return loss.detach()

    def step(self, arguments):
        self.gradients(arguments)
        self.optimizer.step()


def seconds(device, function, *arguments):
    synchronize(device)
    begin = time.perf_counter()
    function(*arguments)
    synchronize(device)
    return time.perf_counter() - begin


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def right_gradients(model, arguments):
    """Returns the loss and gradients in double precision."""
    exact = copy.deepcopy(model).double()
    wide = {key: each.double() if torch.is_tensor(each) and each.is_floating_point() else each for key, each in arguments.items()}
    loss = loss_of(exact(**wide))
    loss.backward()
    return float(loss.detach()), [p.grad for p in exact.parameters()]


def distance(model, right):
    off = size = 0.0
    for parameter, wanted in zip(model.parameters(), right):
        if wanted is None:
            continue
        off += float((parameter.grad.double() - wanted).square().sum())
        size += float(wanted.square().sum())
    return (off / size) ** 0.5


def gpu_kernels(contender, arguments):
    """Returns how many kernels a step launches on a GPU and their microseconds, for all and for normjit's; None on a
    CPU."""
    if contender.options.device != "cuda":
        return None
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        contender.gradients(arguments)
        torch.cuda.synchronize()
    events = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    groups = {"all": events, "normjit": [event for event in events if "normjit" in event.name]}
    return {name: (len(group), round(sum(event.device_time for event in group), 1)) for name, group in groups.items()}


def summaries(regions, taken):
    """Returns of each region that was taken, or was not, what was predicted and why."""
    kept = ("rows", "cols", "bytes", "seconds", "why")
    return [{key: region[key] for key in kept if key in region} for region in regions if region["taken"] == taken]


def measure(kind, options):
    torch._dynamo.reset()
    model, make_arguments = make(kind, options.small)
    dtype = getattr(torch, options.dtype)
    model.to(options.device, dtype)
    arguments = {key: each.to(options.device, dtype if torch.is_tensor(each) and each.is_floating_point() else None)
                 if torch.is_tensor(each) else each for key, each in make_arguments(options.batch, options.tokens).items()}
    loss, right = right_gradients(model, arguments)
    fresh = lambda: copy.deepcopy(model)  # noqa: E731
    running = [Contender("eager torch", fresh(), options), Contender("eager normjit", fresh(), options, normjits=True),
               Contender("eager normjit, forward", fresh(), options, normjits=True, forward=True)]
    if importlib.util.find_spec("liger_kernel") and options.device == "cuda":
        running.append(Contender("eager Liger", with_ligers_norms(fresh()), options))
    compiled = [Contender("compiled torch", fresh(), options, backend="inductor"),
                Contender("compiled by normjit", fresh(), options, backend="normjit")]
    running += reversed(compiled) if options.normjit_first else compiled
    running = [each for each in running if each.name in (options.only or each.name)]
    rows = []
    for each in running:
        regions = len(normjit.torch.graph_report())
        begin = time.perf_counter()
        with each.context():
            got = float(each.gradients(arguments))
        synchronize(options.device)
        row = {"contender": each.name, "first_s": time.perf_counter() - begin, "loss": abs(got - loss) / abs(loss),
               "gradients": distance(each.model, right)}
        found = normjit.torch.graph_report()[regions:]
        row.update(regions=len(found), taken=summaries(found, True), left=summaries(found, False))
        rows.append(row)
    del right
    shuffled = random.Random(1)
    for i in range(-3, options.rounds):
        for each in shuffled.sample(running, len(running)):  # later contenders find a warmer GPU
            with each.context():
                taken = seconds(options.device, each.step, arguments)
            if i >= 0:
                each.times.append(taken * 1e3)
    for each, row in zip(running, rows):
        times = sorted(each.times)
        row["step_ms"] = [times[int(share * (len(times) - 1))] for share in (0.5, 0.2, 0.8)]
        with each.context():
            row["kernels"] = gpu_kernels(each, arguments)
    # Steps that are neighbours in time share what disturbs them.
    by_name = {each.name: each.times for each in running}
    pairs = zip(by_name.get("compiled torch", []), by_name.get("compiled by normjit", []))
    return rows, statistics.median([theirs / ours for theirs, ours in pairs] or [float("nan")])


def show(kind, rows, ratio):
    print(f"\n{kind:22} {'step ms':>24} {'first s':>8} {'loss':>8} {'gradients':>10} {'regions':>8}  kernels")
    for row in rows:
        middle, low, high = row["step_ms"]
        taken = f"{len(row['taken'])}/{row['regions']}" if row["regions"] else ""
        kernels = ""
        if row["kernels"]:
            (count, time_us), (own, own_us) = row["kernels"]["all"], row["kernels"]["normjit"]
            kernels = f"{count}, {time_us / 1e3:.2f} ms; normjit's {own}, {own_us / 1e3:.2f} ms"
        print(f"{row['contender']:22} {middle:8.2f} ({low:.2f} {high:.2f})".ljust(48)
              + f"{row['first_s']:8.1f} {row['loss']:8.1e} {row['gradients']:10.2e} {taken:>8}  {kernels}")
    print(f"compiled torch over compiled by normjit, median of pairs: {ratio:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kinds", nargs="*", default=["llama", "qwen3", "gpt2", "dit"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--mode", help="of torch.compile, for both compiled contenders")
    parser.add_argument("--normjit-first", action="store_true", help="compiles by normjit before torch does")
    parser.add_argument("--only", action="append", help="measure this contender alone: the first step is then a cold start")
    parser.add_argument("--small", action="store_true", help="tiny models, to try it")
    parser.add_argument("--json", help="write what was measured")
    options = parser.parse_args()
    if options.small:
        options.tokens = min(options.tokens, 16)
    place = torch.cuda.get_device_name() if options.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {place}, {options.dtype}, {options.batch} x {options.tokens} tokens, mode {options.mode}")
    found = {}
    with tempfile.TemporaryDirectory() as caches:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = caches
        for kind in options.kinds:
            rows, ratio = measure(kind, options)
            show(kind, rows, ratio)
            found[kind] = {"rows": rows, "ratio": ratio}
            if options.json:
                with open(options.json, "w") as file:
                    json.dump({"gpu": place, "date": datetime.date.today().isoformat(), "options": vars(options),
                               "torch": torch.__version__, "models": found}, file, indent=1, default=str)


if __name__ == "__main__":
    main()
