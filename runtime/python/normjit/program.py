# SPDX-License-Identifier: Apache-2.0
"""Runs the program normjit from Python, in a separate process if it forks or asks every device."""
from __future__ import annotations

import contextlib
import os
import sys

from normjit import _library

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Any, Union

    Path = Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]

EXIT_ERRORS = {2: _library.InvalidArgument, 3: _library.Unavailable}
STDERR = 2
ERROR = "error: "
MOST_SAID = 1 << 16


def compile(spec: str, target: str = "host", *, schedule: str | None = None) -> bytes:
    """Returns the kernel of a spec as bytes for `normjit run --artifact` and normjit_artifact_deserialise().

    spec      a text: "layernorm cols=4096 x=bf16 gamma=f32"
    target    "host", "sm_90", "x86-64-avx512 bf16=1", "aarch64", ...; such a machine is not needed
    schedule  a text; None: the heuristic's"""
    if _library.encoded("target", target).startswith(b"sm_"):
        _library.load_nvrtc()
    return _library.Artifact(target, _library.parse_spec(spec), schedule).bytes()


def info(spec: str | None = None, *, target: str | None = None) -> dict[str, Any]:
    """Returns as a dict what `normjit info` shows: the program, its devices and variables; with a spec, what is chosen
    for it."""
    import json  # imported here, as below, because importing normjit must take only milliseconds

    words: list[str | bytes] = ["info", "--json"]
    words += [] if target is None else ["--target", _library.encoded("target", target)]
    words += [] if spec is None else ["--", _library.encoded("spec", spec)]  # a spec may start with a dash
    facts: dict[str, Any] = json.loads(_run(words, captured=True))
    return facts


def tune(shapes: Path, output: Path, *, device: str = "cpu", budget: str | None = None) -> None:
    """Measures schedules for a file of specs, one per line, and adds the fastest ones to the file `output`, for
    NORMJIT_RECORDS. This is `normjit tune`, which shows its progress on stderr. `budget` is the longest time, "10m"."""
    words: list[str | bytes] = ["tune", "-o", _path("output", output), "--device", _library.encoded("device", device)]
    words += [] if budget is None else ["--budget", _library.encoded("budget", budget)]
    _run([*words, "--", _path("shapes", shapes)], captured=False)


def _path(name: str, path: Path) -> bytes:
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise _library.InvalidArgument(f"{name}: is {type(path).__name__}; must be a path") from None
    return _library.encoded(name, text)


def _run(words: list[str | bytes], captured: bool) -> bytes:
    """Runs the program and returns its results. If they are not captured, shows its messages as they arrive."""
    import subprocess

    command = os.fsdecode(words[0])
    path = [os.path.dirname(_library.FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    process: dict[str, Any] = {"args": [_interpreter(command), "-m", "normjit", *words],
               "env": {**os.environ, "PYTHONPATH": os.pathsep.join(path)}}
    if captured:
        done: subprocess.CompletedProcess[bytes] = subprocess.run(capture_output=True, **process)
    else:
        done = _run_shown(process)
    if done.returncode:
        raise EXIT_ERRORS.get(done.returncode, _library.Error)(_reason(command, done))
    return done.stdout


def _interpreter(command: str) -> str:
    """Returns the name of this Python's program. Raises Unavailable if there is none, as in a program that embeds
    Python."""
    if not sys.executable or not os.access(sys.executable, os.X_OK):
        raise _library.Unavailable(f"{command} runs in a process of its own: sys.executable is {sys.executable!r}; must be "
                                   "the Python to start there")
    return sys.executable


def _run_shown(process: dict[str, Any]) -> subprocess.CompletedProcess[bytes]:
    """Gives the program a terminal if there is one, because it shows its progress only there."""
    import subprocess
    import tty

    is_terminal = os.isatty(STDERR)
    read, write = os.openpty() if is_terminal else os.pipe()
    try:
        if is_terminal:
            tty.setraw(write)  # passes bytes on unchanged
        started = subprocess.Popen(stdout=subprocess.DEVNULL, stderr=write, **process)
    except BaseException:
        os.close(read)
        raise
    finally:
        os.close(write)
    with open(read, "rb", buffering=0) as messages, started:
        try:
            said = _shown(messages)
        except BaseException:
            started.kill()
            raise
    return subprocess.CompletedProcess(started.args, started.returncode, None, said)


def _shown(messages: Any) -> bytes:
    """Shows messages, and returns the last part of them."""
    said = b""
    while True:
        try:
            part = messages.read(MOST_SAID)
        except OSError:  # at the end of a terminal's output, reading fails
            part = b""
        if not part:
            return said
        said = (said + part)[-MOST_SAID:]
        with contextlib.suppress(OSError):
            os.write(STDERR, part)


def _reason(command: str, done: subprocess.CompletedProcess[bytes]) -> str:
    """Returns what went wrong according to the program's messages, without the progress before that."""
    lines = [line.rpartition("\x1b[K")[2] for line in done.stderr.decode(errors="replace").split("\n")]
    errors = [line[len(ERROR):] for line in lines if line.startswith(ERROR)]
    if errors:
        return "; ".join(errors)
    return "\n".join([f"normjit {command} ended with exit code {done.returncode}", *filter(None, lines)])
