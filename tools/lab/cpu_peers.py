#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures normjit's and other libraries' norm backward passes on a CPU, as `normjit bench --json` does.

    python3 tools/lab/cpu_peers.py --shapes tools/lab/cpu_shapes.txt --json cpu.json [--threads 1,2] [--rounds 3]
        [--normjit build/tools/normjit/normjit] [--onednn build/tools/lab/normjit_onednn] [--only torch,onednn]

For each shape and number of threads, normjit (with its ceiling) and every peer run in turn, in rounds. Results are
medians over the rounds, and a peer's share is relative to the ceiling of its own round. Then: results.py.

    torch    the operators that autograd calls (eager); rmsnorm through autograd
    compile  autograd through torch.compile of the forward pass
    onednn   layernorm only; with f32 gamma, whatever the spec says (target normjit_onednn)

Peers that allocate their outputs get memory that they freed before, so without page faults.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

EPS = 1e-5
# glibc keeps freed memory instead of returning it, so that a peer's next outputs already have pages.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 40), "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
               "MALLOC_TOP_PAD_": str(1 << 28)}


class Problem:
    """The filled tensors of one line of a shapes file."""

    def __init__(self, torch, spec):
        dtypes = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
        words = spec.split()
        keys = dict(word.split("=") for word in words[1:])
        self.torch, self.norm = torch, words[0]
        self.rows, self.cols = int(keys["rows"]), int(keys["cols"])
        x_type = keys.get("x", "f32")
        if set(keys) - {"rows", "cols", "x", "gamma"} or keys.get("gamma", x_type) not in dtypes:
            raise ValueError("a key that the peers have no word for")
        torch.manual_seed(1)
        self.x = torch.randn(self.rows, self.cols).to(dtypes[x_type])
        self.dy = torch.randn(self.rows, self.cols).to(dtypes[x_type])
        self.gamma = torch.ones(self.cols, dtype=dtypes[keys.get("gamma", x_type)])
        self.beta = torch.zeros_like(self.gamma)

    def forward(self, x, gamma, beta):
        functional = self.torch.nn.functional
        if self.norm == "layernorm":
            return functional.layer_norm(x, (self.cols,), gamma, beta, EPS)
        return functional.rms_norm(x, (self.cols,), gamma, EPS)

    def through_autograd(self, forward):
        inputs = [tensor.detach().requires_grad_() for tensor in (self.x, self.gamma, self.beta)]
        y = forward(*inputs)
        wanted = inputs if self.norm == "layernorm" else inputs[:2]
        return lambda: self.torch.autograd.grad(y, wanted, self.dy, retain_graph=True)


def torch_eager(p):
    if p.norm == "rmsnorm":
        return p.through_autograd(p.forward)
    aten = p.torch.ops.aten
    _, mean, rstd = aten.native_layer_norm(p.x, (p.cols,), p.gamma, p.beta, EPS)
    return lambda: aten.native_layer_norm_backward(p.dy, p.x, (p.cols,), mean, rstd, p.gamma, p.beta, (True, True, True))


def torch_compile(p):
    p.torch._dynamo.reset()
    return p.through_autograd(p.torch.compile(p.forward))


TORCH_PEERS = {"torch": torch_eager, "compile": torch_compile}


def median_seconds(run, budget):
    run()
    times = []
    while len(times) < 5 or (sum(times) < budget and len(times) < 10000):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def lines_of(command, threads):
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]}: exit status {done.returncode}")
    return done.stdout


def measure_normjit(spec, threads, options):
    command = [options.normjit, "bench", spec, "--threads", str(threads), "--seconds", str(options.seconds), "--json", "-"]
    document = json.loads(lines_of(command, threads))
    return document, document["results"][0]


def measure_onednn(spec, threads, options):
    for line in lines_of([options.onednn, str(options.seconds), spec], threads).splitlines():
        return json.loads(line)["median_seconds"]
    raise ValueError("no kernel")


def combined(rounds):
    """Returns one result from those of all rounds, with medians."""
    result = dict(rounds[0])
    for key in ("median_seconds", "bytes_per_second", "share"):
        values = [each[key] for each in rounds if key in each]
        if values:
            result[key] = statistics.median(values)
    if "ceiling" in result:
        seconds = statistics.median(each["ceiling"]["median_seconds"] for each in rounds)
        result["ceiling"] = {**result["ceiling"], "median_seconds": seconds, "bytes_per_second": result["bytes"] / seconds}
    return result


def measure_shape(spec, threads, torch_runs, options):
    """Returns the combined results of normjit and of each peer, and the last JSON document of normjit."""
    found, document = {"normjit": []}, None
    for _ in range(options.rounds):
        document, ours = measure_normjit(spec, threads, options)
        found["normjit"].append(ours)
        ceiling = ours.get("ceiling", {}).get("median_seconds")
        for peer in options.only:
            try:
                if peer == "onednn":
                    seconds = measure_onednn(spec, threads, options)
                elif peer in torch_runs:
                    seconds = median_seconds(torch_runs[peer], options.seconds)
                else:
                    continue
            except (RuntimeError, ValueError) as error:
                if not found.get(peer):
                    print(f"{spec}: {peer} left out: {str(error).splitlines()[0][:100]}", file=sys.stderr)
                continue
            result = {"spec": ours["spec"], "threads": threads, "peer": peer, "median_seconds": seconds,
                      "bytes": ours["bytes"], "bytes_per_second": ours["bytes"] / seconds}
            if ceiling:
                result |= {"share": ceiling / seconds, "ceiling": ours["ceiling"]}
            found.setdefault(peer, []).append(result)
    return [combined(rounds) for rounds in found.values() if rounds], document


def prepare_torch(torch, spec, options):
    """Returns {peer: a function that runs it}, for those that can."""
    runs = {}
    peers = [peer for peer in options.only if peer in TORCH_PEERS]
    if not peers:
        return runs
    try:
        problem = Problem(torch, spec)
    except (ValueError, RuntimeError) as error:
        print(f"{spec}: torch left out: {str(error).splitlines()[0]}", file=sys.stderr)
        return runs
    for peer in peers:
        try:
            runs[peer] = TORCH_PEERS[peer](problem)
        except Exception as error:  # whatever torch.compile raises
            print(f"{spec}: {peer} left out: {str(error).strip().splitlines()[0][:100]}", file=sys.stderr)
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", required=True, help="a file with one spec a line")
    parser.add_argument("--json", required=True, help="the file to write")
    parser.add_argument("--normjit", default="build/tools/normjit/normjit")
    parser.add_argument("--onednn", default="build/tools/lab/normjit_onednn")
    parser.add_argument("--threads", default="1,all", help="numbers or all, separated by commas")
    parser.add_argument("--only", default="torch,onednn", help="peers, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each measurement")
    parser.add_argument("--limit", type=float, default=3600, help="seconds after which no new shape is begun")
    options = parser.parse_args()
    options.only = [peer for peer in options.only.split(",") if peer]
    torch = None
    if set(options.only) & set(TORCH_PEERS):
        import torch
    cores = len(os.sched_getaffinity(0))
    with open(options.shapes) as file:
        specs = [line.split("#")[0].strip() for line in file]
    start, document = time.monotonic(), {"device": "cpu", "results": []}
    for spec in filter(None, specs):
        if time.monotonic() - start > options.limit:
            print(f"{spec} and what follows: no time left", file=sys.stderr)
            break
        runs = prepare_torch(torch, spec, options)
        for threads in [cores if word == "all" else int(word) for word in options.threads.split(",")]:
            if torch:
                torch.set_num_threads(threads)
            results, ours = measure_shape(spec, threads, runs, options)
            document |= {key: value for key, value in ours.items() if key != "results"}
            document["results"] += results
            print(f"{spec}, {threads} threads:", "  ".join(
                f"{r.get('peer', 'normjit')} {1e6 * r['median_seconds']:.1f} us {r.get('share', 0):.2f}" for r in results),
                flush=True)
        if torch:
            document["torch"] = torch.__version__
        with open(options.json, "w") as file:
            json.dump(document, file, indent=1)


if __name__ == "__main__":
    if "MALLOC_TOP_PAD_" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})
    main()
