#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that training on several GPUs with normjit equals training on one.

A small transformer like GPT-2 and one like Llama are trained by one process with torch's norms and with normjit's. All
processes then train them with normjit's norms and FSDP2 (each with its part of the batch), and with sequence parallelism
(each with its part of every sequence; the linear layers are split between them). The losses of all steps and the
gradients of the first are compared with those of one process and torch's norms.

    PYTHONPATH=build/python two_gpus.py                        # NCCL, all GPUs of this host
    PYTHONPATH=build/python two_gpus.py --device cpu --world 2 # gloo
    [--dtype bfloat16] [--steps 20] [--width 512] [--layers 4] [--batch 8] [--tokens 512] [--vocabulary 8192] [--json FILE]

Exit code 1: they differ by more than --tolerance, relative to the loss or to all gradients in the 2-norm, or a norm's
backward pass was left to torch."""
import argparse
import copy
import functools
import json
import os
import pathlib
import socket
import sys

import normjit.torch
import small_transformer
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               parallelize_module)

KINDS = ("gpt2", "llama")
TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2}


def fsdp(model, mesh):
    for block in model.h:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def sequence_parallel(model, mesh):
    """Shards the residual stream between blocks along the sequence, so that each rank's norms work on their part."""
    across = functools.partial(ColwiseParallel, input_layouts=Shard(1))
    back = functools.partial(RowwiseParallel, output_layouts=Shard(1))
    norm = functools.partial(SequenceParallel, use_local_output=True)
    plan = {"ln_f": norm(), "head": across(output_layouts=Replicate())}
    for i, block in enumerate(model.h):
        own = {"ln_1": norm(), "ln_2": norm(), "qkv": across(output_layouts=Replicate()),
               "out": back(input_layouts=Replicate()), "mlp.up": across(), "mlp.down": back()}
        if hasattr(block.mlp, "gate"):
            own["mlp.gate"] = across()
        plan.update({f"h.{i}.{name}": style for name, style in own.items()})
    plan["h.0"] = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1), use_local_output=True)
    return parallelize_module(model, mesh, plan)


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def mean_of_ranks(loss):
    loss = loss.detach().double().clone()
    distributed.all_reduce(loss)
    return float(loss) / distributed.get_world_size()


def train(model, batches, loss_of=float):
    """Returns the losses of all steps, the first gradients by name, and the calls served and left to torch."""
    before = normjit.torch.report()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=False)
    losses, gradients = [], {}
    for ids in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = model(ids)
        loss.backward()
        losses.append(loss_of(loss.detach()))
        if not gradients:
            gradients = {name: whole(p.grad).double().cpu() for name, p in model.named_parameters()}
        optimizer.step()
    after = normjit.torch.report()
    return losses, gradients, [after[key] - before[key] for key in ("calls", "left_to_torch")]


def runs(kind, options, mesh):
    """Returns [(name, results of train())]; all ranks take part in the collectives."""
    rank, world = distributed.get_rank(), distributed.get_world_size()
    model = small_transformer.make(kind, options.width, options.layers, options.vocabulary, options.tokens,
                                   getattr(torch, options.dtype), options.place)
    torch.manual_seed(1)
    batches = [torch.randint(options.vocabulary, (options.batch, options.tokens + 1)).to(options.place)
               for _ in range(options.steps)]
    own = [ids[rank * options.batch // world : (rank + 1) * options.batch // world] for ids in batches]
    yield "torch's norms", train(copy.deepcopy(model), batches)
    with normjit.torch.enabled():
        patched = lambda: normjit.torch.patch(copy.deepcopy(model), forward=options.forward)  # noqa: E731
        yield "one process", train(patched(), batches)
        yield "FSDP2", train(fsdp(patched(), mesh), own, mean_of_ranks)
        yield "sequence parallel", train(sequence_parallel(patched(), mesh), batches)


def difference(gradients, right):
    """Returns the relative error in the 2-norm of all gradients, and of the norms' gradients alone."""
    def of(names):
        off = sum(float((gradients[name] - right[name]).square().sum()) for name in names)
        return (off / sum(float(right[name].square().sum()) for name in names)) ** 0.5

    return of(right), of([name for name in right if "ln_" in name])


def compare(kind, options, mesh):
    rows, right = [], None
    for name, (losses, gradients, (served, left)) in runs(kind, options, mesh):
        right = right or (losses, gradients)
        off, off_norms = difference(gradients, right[1])
        off_loss = max(abs(a - b) / abs(b) for a, b in zip(losses, right[0]))
        good = max(off_loss, off, off_norms) <= options.tolerance and left == 0 and (served > 0) == (len(rows) > 0)
        rows.append({"run": name, "losses": losses, "loss_difference": off_loss, "difference": off,
                     "norms_difference": off_norms, "served": served, "left_to_torch": left, "good": good})
        if distributed.get_rank() == 0:
            print(f"{kind:6} {name:18} {losses[0]:8.4f} {losses[-1]:8.4f} {off_loss:10.1e} {off:10.1e} {off_norms:10.1e} "
                  f"{served:7} {left:5}  {'' if good else 'WRONG'}", flush=True)
    return rows


def of_rank(rank, options, port):
    options.place = f"cuda:{rank}" if options.device == "cuda" else "cpu"
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if options.device == "cuda":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(max(1, os.cpu_count() // options.world))
    distributed.init_process_group("nccl" if options.device == "cuda" else "gloo", rank=rank, world_size=options.world)
    mesh = init_device_mesh(options.device, (options.world,))
    if rank == 0:
        print(f"torch {torch.__version__}, {options.world} x {options.device}, {options.dtype}\n{'':25} {'first':>8} "
              f"{'last':>8} {'losses off':>10} {'gradients':>10} {'norms':>10} {'served':>7} {'left':>5}", flush=True)
    found = {kind: compare(kind, options, mesh) for kind in options.kinds}
    if rank == 0 and options.json:
        pathlib.Path(options.json).write_text(json.dumps({"options": vars(options), "torch": torch.__version__,
                                                          "runs": found}, indent=1))
    distributed.barrier()
    distributed.destroy_process_group()
    # Skips the interpreter's own shutdown. During it, a thread of the process group that asks for the interpreter's
    # lock is unwound through noexcept functions, which ends the process with "terminate called without an active
    # exception".
    sys.stdout.flush()
    os._exit(0 if all(row["good"] for rows in found.values() for row in rows) else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kinds", nargs="*", default=KINDS)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--world", type=int, help="processes; every GPU of the host by default")
    parser.add_argument("--dtype", choices=list(TOLERANCE), default="float32")
    parser.add_argument("--forward", action="store_true", help="normjit's forward passes, too: patch(forward=True)")
    for name, value in {"steps": 20, "width": 512, "layers": 4, "batch": 8, "tokens": 512, "vocabulary": 8192}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--tolerance", type=float, help=f"by default {TOLERANCE}")
    parser.add_argument("--json", help="write what was found")
    options = parser.parse_args()
    options.world = options.world or (torch.cuda.device_count() if options.device == "cuda" else 2)
    options.tolerance = options.tolerance or TOLERANCE[options.dtype]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    try:
        torch.multiprocessing.spawn(of_rank, (options, port), options.world)
    except torch.multiprocessing.ProcessExitedException as error:
        sys.exit(error.exit_code or 1)


if __name__ == "__main__":
    main()
