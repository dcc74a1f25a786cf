# SPDX-License-Identifier: Apache-2.0
"""Times replays of CUDA graphs that take turns, with a cold L2 cache, or many launches in one graph, and finds the
fastest setting of torch.compile."""
import contextlib
import fcntl
import functools
import statistics
import sys

import torch

FLUSH_BYTES = 256 << 20
LAUNCHES, ROUNDS = 40, 15  # used by microseconds()
# Settings of Inductor for a norm besides its defaults; "compile-best" is the fastest of these.
INDUCTOR = {
    "default": {},
    "mix-order reduction": {"triton.mix_order_reduction": True, "triton.mix_order_reduction_non_strict_mode": True},
    "all of it": {"max_autotune": True, "coordinate_descent_tuning": True, "triton.mix_order_reduction": True,
                  "triton.mix_order_reduction_non_strict_mode": True,
                  "triton.mix_order_reduction_autotune_split_size": True},
}
flush = None


class Turn:
    """The right to use a GPU on which several processes measure. It is a lock on a file, which a process loses when it
    ends. A process may take it again while it has it. Without a file, the GPU belongs to this process alone."""

    def __init__(self, path=None):
        self.file, self.depth = path and open(path, "w"), 0

    def _lock(self, operation):
        if self.file:
            fcntl.flock(self.file, operation)

    def __enter__(self):
        if self.depth == 0:
            self._lock(fcntl.LOCK_EX)
        self.depth += 1

    def __exit__(self, *_):
        self.depth -= 1
        if self.depth == 0:
            self._lock(fcntl.LOCK_UN)

    @contextlib.contextmanager
    def given_up(self):
        """Leaves the GPU to the others."""
        depth, self.depth = self.depth, 0
        self._lock(fcntl.LOCK_UN)
        try:
            yield
        finally:
            if depth:
                self._lock(fcntl.LOCK_EX)
            self.depth = depth

    def taken_by(self, module, name):
        """Makes module.name(...) wait for its turn."""
        function = getattr(module, name)

        @functools.wraps(function)
        def in_turn(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        setattr(module, name, in_turn)


turn = Turn()


def share_gpu(path):
    """Lets this process compile while others measure on its GPU. It holds a lock on the file while this code or a
    peer's autotuner times something."""
    global turn
    import triton
    from torch._inductor.runtime.benchmarking import benchmarker

    turn = Turn(path)
    turn.taken_by(benchmarker, "benchmark_gpu")
    turn.taken_by(triton.testing, "do_bench")


def compiling():
    """Returns a context in which a peer compiles, and others may use the GPU."""
    return turn.given_up()


def known(options):
    """Returns the settings that this version of Inductor has."""
    return {name: value for name, value in options.items() if name in torch._inductor.list_options()}


def fastest_setting(title, make, seconds):
    """Returns the fastest of make(options) over INDUCTOR; seconds(run) measures."""
    tried = []
    for name, options in INDUCTOR.items():
        run = make(options)
        tried.append((seconds(run), len(tried), run, name))
    print(f"{title}: of torch.compile the fastest is {min(tried)[3]}", file=sys.stderr)
    return min(tried)[2]


def seconds_of(runs, samples):
    """Returns medians of runs that take turns, each after a flush of the L2 cache."""
    global flush
    if flush is None:
        flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    events = [[[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in runs] for _ in range(samples)]
    with turn:
        for of_sample in events:
            for run, (first, last) in zip(runs, of_sample):
                flush.zero_()
                first.record()
                run()
                last.record()
        torch.cuda.synchronize()
    return [statistics.median(1e-3 * first.elapsed_time(last) for first, last in of_run) for of_run in zip(*events)]


def captured(run):
    """Returns a replay of the graph of a run, which keeps the run's memory alive; its results are in `results`."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        with compiling():
            run()  # the first call compiles
        run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run()
    replay = functools.partial(_replay, graph, run)
    replay.results = results
    return replay


def _replay(graph, _run):
    graph.replay()


def microseconds(launch):
    """Returns the median of a launch's share of a graph; launch(number) enqueues one on the current stream."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        launch(0)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(LAUNCHES):
            launch(number)
    times = []
    for _ in range(ROUNDS + 1):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last) * 1000 / LAUNCHES)
    return statistics.median(times[1:])
