#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures everything that the results page says about a GPU, on all GPUs of this machine; each gets some of the
shapes.

    PYTHONPATH=build/python python3 tools/lab/page_round.py --json results/h200_page.json [--seconds 540]

A problem is measured by one process: all peers of gpu_peers.py, or of formula_peers.py, in turns. Several processes share
a GPU: one measures, the others compile meanwhile. If the time does not suffice, run it again with the same file: what it
holds is kept, and only what is missing is measured. All must come from one day and one build; the file names both."""
import argparse
import datetime
import importlib.metadata
import json
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
PACKAGES = ("torch", "triton", "liger-kernel", "nvidia-cudnn-frontend", "nvidia-cudnn-cu13", "quack-kernels",
            "flash-linear-attention")


def facts():
    """Returns the conditions of the figures: the card, the day, the build, and the versions of the peers."""
    import normjit
    import torch

    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"gpus": torch.cuda.device_count(), "gpu": torch.cuda.get_device_name(), "date": datetime.date.today().isoformat(), "normjit": normjit.__version__,
            "packages": versions}


def read(path, default):
    return json.loads(path.read_text()) if path.exists() else default


def problem_of(result):
    return result.get("spec") or result["case"]


def jobs_of(document):
    """Returns all problems in order, and what remains to be measured: pairs of a problem's list and the problem."""
    import formula_peers
    import gpu_problem

    done = {problem_of(each) for each in document["results"] + document["formulas"]}
    jobs = [("results", spec) for spec in gpu_problem.specs_of(HERE / "page_shapes.txt")]
    jobs += [("formulas", case) for case in formula_peers.GPU_CASES]
    order = [job[1] for job in jobs]
    return order, [job for job in jobs if job[1] not in done]


def work(gpu, lock, pipe):
    """Measures the problems that the pipe brings, on one GPU, and sends the results back. A peer that breaks the GPU's
    context ends this process."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)  # must be set before anything opens the driver
    import formula_peers
    import gpu_peers
    import gpu_timing
    import torch

    peers = gpu_peers.importable(gpu_peers.PEERS)
    gpu_timing.share_gpu(lock)
    while True:
        try:
            kind, problem = pipe.recv()
        except EOFError:  # everything has been measured
            return
        with gpu_timing.turn:
            if kind == "results":
                results = gpu_peers.measure_spec(problem, peers, 0.2)
            else:
                results = formula_peers.measure(formula_peers.Problem(problem, "cuda"), formula_peers.PEERS, "cuda", 0.3)
            torch.cuda.empty_cache()  # leaves the memory to the others
        pipe.send(results)


class Worker:
    """A process that measures on a GPU when it holds the lock, and its problem."""

    def __init__(self, gpu, lock):
        self.gpu, self.lock, self.job = gpu, lock, None
        self.start()

    def start(self):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(self.gpu, self.lock, theirs), daemon=True)
        self.process.start()

    def give(self, job):
        self.job = job
        self.pipe.send(job)

    def take(self):
        """Returns the results of its problem, or None if there are none yet."""
        if self.job is None:
            return None
        if self.pipe.poll():
            self.job = None
            return self.pipe.recv()
        if self.process.is_alive():
            return None
        print(f"{self.job[1]}: the process ended; left out", file=sys.stderr)
        self.job = None
        self.start()
        return []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", required=True, type=pathlib.Path, help="the file to write, or to go on with")
    parser.add_argument("--seconds", type=float, default=3600, help="after which no new problem is begun [%(default)s]")
    parser.add_argument("--gpus", default="all", help="numbers, separated by commas [%(default)s]")
    parser.add_argument("--processes", type=int, default=3, help="that share a GPU [%(default)s]")
    options = parser.parse_args()
    now = facts()
    gpus = range(now.pop("gpus")) if options.gpus == "all" else list(map(int, options.gpus.split(",")))
    document = read(options.json, {**now, "results": [], "formulas": []})
    for name, value in now.items():
        if document[name] != value:
            parser.error(f"{options.json}: {name} is {document[name]}; now it is {value}: a file is of one build, card and day")
    (order, jobs), begun = jobs_of(document), time.monotonic()
    folder = tempfile.TemporaryDirectory()
    workers = [Worker(gpu, f"{folder.name}/gpu{gpu}") for _ in range(options.processes) for gpu in gpus]
    while jobs or any(worker.job for worker in workers):
        for worker in workers:
            if worker.job is None and jobs:
                worker.give(jobs.pop(0))
            kind = worker.job and worker.job[0]
            results = worker.take()
            if results is not None:
                document[kind] = sorted(document[kind] + results, key=lambda each: order.index(problem_of(each)))
                options.json.write_text(json.dumps(document, indent=1) + "\n")
        if jobs and time.monotonic() - begun > options.seconds:
            print(f"no time for {len(jobs)} problems: run it again with the same file", file=sys.stderr)
            jobs = []
        time.sleep(0.05)


if __name__ == "__main__":
    main()
