#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what normjit changes in training steps of GPT-2-like and Llama-like transformers.

That is the norms' backward passes, the time of a step, memory, and the distance of gradients, compared with PyTorch's
own kernels, eager and compiled, and Liger's if installed.

    PYTHONPATH=build/python training_step.py --device cuda --json steps.json
    PYTHONPATH=build/python training_step.py --width 128 --layers 2 --tokens 64 --vocabulary 512 --rounds 3    # any CPU

"normjit, forward" has normjit's forward passes as well; "compiled by normjit" is torch.compile's backend of that name. Contenders take turns, step by step; times are medians, in
brackets the 20th and 80th percentiles. A step is forward, backward and a fused AdamW. "norm" is the backward pass of a
single norm of the model, on inputs of its shape, with the memory of its results. Differences are those of all gradients
of the first step, in the 2-norm, relative to torch's."""
import argparse
import contextlib
import copy
import json
import statistics
import time

import normjit.torch
import small_transformer
import torch


class Contender:
    """A model and how its steps are run."""

    def __init__(self, name, model, device, normjits=False, compiled=False, forward=False, backend="inductor"):
        self.name, self.device, self.normjits = name, device, normjits
        self.model = normjit.torch.patch(model, compiled=compiled, forward=forward) if normjits else model
        self.backend = backend
        self.call = torch.compile(self.model, backend=backend) if compiled else self.model
        fused = {"fused": True} if device == "cuda" else {}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, **fused)
        self.times = []

    def context(self):
        """Returns the context in which it runs; entering it takes time that does not belong to a step."""
        return normjit.torch.enabled() if self.normjits else contextlib.nullcontext()

    def gradients(self, ids):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.call(ids)
        loss.backward()
        return loss.detach()

    def step(self, ids):
        loss = self.gradients(ids)
        self.optimizer.step()
        return loss

    def norm_microseconds(self, rows, rounds):
        """Returns the median time of the backward pass of its first norm."""
        norm = small_transformer.norms(self.model)[:1] or [self.model.ln_f]  # whatever a peer put there
        weight = norm[0].weight
        x = torch.randn(rows, weight.numel(), device=self.device).to(weight.dtype).requires_grad_()
        dy = torch.randn_like(x)
        call = torch.compile(norm[0], backend=self.backend) if self.call is not self.model else norm[0]
        inputs = [x, *norm[0].parameters()]
        with torch._functorch.config.patch(donated_buffer=False):  # the graph is kept
            y = call(x)
            backward = lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True)  # noqa: E731
            return statistics.median(seconds(self.device, backward) for _ in range(rounds + 3)) * 1e6


def seconds(device, function, *arguments):
    synchronize(device)
    begin = time.perf_counter()
    function(*arguments)
    synchronize(device)
    return time.perf_counter() - begin


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def with_liger(model, kind):
    """Returns the model with Liger's norms."""
    from liger_kernel.transformers import LigerLayerNorm, LigerRMSNorm

    for module in list(model.modules()):
        for name, norm in list(module.named_children()):
            if norm not in small_transformer.norms(model):
                continue
            width = norm.weight.numel()
            new = LigerLayerNorm(width, eps=norm.eps) if kind == "gpt2" else LigerRMSNorm(width, eps=norm.eps)
            new.to(norm.weight.device, norm.weight.dtype).load_state_dict(norm.state_dict(), strict=False)
            setattr(module, name, new)
    return model


def contenders(kind, options):
    model = small_transformer.make(kind, options.width, options.layers, options.vocabulary, options.tokens,
                                   getattr(torch, options.dtype), options.device)
    fresh = lambda: copy.deepcopy(model)  # noqa: E731
    found = [Contender("torch", fresh(), options.device),
             Contender("normjit", fresh(), options.device, normjits=True),
             Contender("normjit, forward", fresh(), options.device, normjits=True, forward=True)]
    if options.device == "cuda":
        try:
            found.append(Contender("liger", with_liger(fresh(), kind), options.device))
        except ImportError:
            print("liger: not installed")
    if not options.no_compile:
        found.append(Contender("compiled torch", fresh(), options.device, compiled=True))
        found.append(Contender("compiled normjit", fresh(), options.device, normjits=True, compiled=True))
        found.append(Contender("compiled by normjit", fresh(), options.device, compiled=True, backend="normjit"))
    return found


def difference(contender, right):
    """Returns how far a contender's gradients are from the right ones: the relative error in the 2-norm."""
    pairs = list(zip((p.grad for p in contender.model.parameters()), right))
    off = sum(float((a.double() - b.double()).square().sum()) for a, b in pairs)
    return (off / sum(float(b.double().square().sum()) for _, b in pairs)) ** 0.5


def peak_bytes(contender, ids):
    if contender.device != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    contender.gradients(ids)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def measure(kind, options):
    running = contenders(kind, options)
    ids = torch.randint(options.vocabulary, (options.batch, options.tokens + 1), device=options.device)
    rows = []
    right = None
    for each in running:
        calls = normjit.torch.report()["calls"]
        with each.context():
            loss = float(each.gradients(ids))
            served = normjit.torch.report()["calls"] - calls
            right = right or [p.grad.clone() for p in each.model.parameters()]
            rows.append({"contender": each.name, "loss": loss, "difference": difference(each, right), "served": served,
                         "peak_bytes": peak_bytes(each, ids),
                         "norm_us": each.norm_microseconds(options.batch * options.tokens, options.rounds)})
    for i in range(-3, options.rounds):
        for each in running:
            with each.context():
                taken = seconds(options.device, each.step, ids)
            if i >= 0:
                each.times.append(taken * 1e3)
    for each, row in zip(running, rows):
        times = sorted(each.times)
        row["step_ms"] = [times[int(share * (len(times) - 1))] for share in (0.5, 0.2, 0.8)]
    return rows


def show(kind, rows):
    print(f"\n{kind}\n{'':18} {'step ms':>24} {'norm us':>9} {'memory MB':>10} {'loss':>8} {'difference':>10} {'served':>6}")
    for row in rows:
        middle, low, high = row["step_ms"]
        memory = "-" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e6:.0f}"
        print(f"{row['contender']:18} {middle:9.2f} ({low:.2f} {high:.2f})".ljust(44)
              + f"{row['norm_us']:9.1f} {memory:>10} {row['loss']:8.4f} {row['difference']:10.1e} {row['served']:6}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kinds", nargs="*", default=["gpt2", "llama"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--width", type=int, default=1024, help="a multiple of 64")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=1024, help="of a sequence")
    parser.add_argument("--vocabulary", type=int, default=32768)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--json", help="write what was measured")
    options = parser.parse_args()
    place = torch.cuda.get_device_name() if options.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {place}, {options.dtype}, width {options.width}, {options.layers} layers, "
          f"{options.batch} x {options.tokens} tokens")
    found = {}
    for kind in options.kinds:
        found[kind] = measure(kind, options)
        show(kind, found[kind])
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"options": vars(options), "torch": torch.__version__, "place": place, "steps": found}, file,
                          indent=1)


if __name__ == "__main__":
    main()
