# SPDX-License-Identifier: Apache-2.0
# needs: numpy
"""The functions on arrays in processes that fork."""
from processes import run_program

FORKS = """
import os, signal, threading
import normjit, numpy as np
def compute(cols):
    x = np.full((4, cols), 0.5, np.float32)
    return normjit.layer_norm_backward(x, x).dx.any()
over = False
def make_kernels(first):
    cols = first
    while not over:
        cols += 4
        compute(cols)
threads = [threading.Thread(target=make_kernels, args=(100 + i,)) for i in range(2)]
for thread in threads:
    thread.start()
statuses = []
for i in range(60):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        compute(64), compute(30000 + i)
        os._exit(0)
    statuses.append(os.waitpid(child, 0)[1])
over = True
for thread in threads:
    thread.join()
assert not any(statuses), statuses
"""


def test_forks_while_threads_make_kernels():
    done = run_program(FORKS)
    assert done.returncode == 0, done.stderr


BOTH_PROCESSES = """
import os
import normjit, numpy as np
x, y = np.random.default_rng(1).standard_normal((2, 2000, 256), np.float32)
right = normjit.layer_norm_backward(x, x, y[0]), normjit.layer_norm_backward(y, y, x[0])
child = os.fork()
t, gamma = (y, x[0]) if child == 0 else (x, y[0])
same = all((a == b).all() for _ in range(300) for a, b in zip(normjit.layer_norm_backward(t, t, gamma), right[child == 0]))
if child == 0:
    os._exit(not same)
assert os.waitpid(child, 0)[1] == 0 and same
"""


def test_parent_and_child_have_workspaces_of_their_own():
    done = run_program(BOTH_PROCESSES)
    assert done.returncode == 0, done.stderr
