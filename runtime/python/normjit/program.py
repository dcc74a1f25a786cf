# SPDX-License-Identifier: Apache-2.0
"""What the program normjit does, for Python: in a process of its own where it forks or asks every device."""
import os
import sys

from normjit import _library

EXIT_ERRORS = {2: _library.InvalidArgument, 3: _library.Unavailable}


def compile(spec, target="host", *, schedule=None):
    """The kernel of a spec as bytes that `normjit run --artifact` and normjit_artifact_deserialise() take.

    spec      a text: "layernorm cols=4096 x=bf16 gamma=f32"
    target    "host", "sm_90", "x86-64-avx512 bf16=1", "aarch64", ...; no such machine is needed
    schedule  a text; None: the heuristic's"""
    if _library.encoded("target", target).startswith(b"sm_"):
        _library.load_nvrtc()
    return _library.Artifact(target, _library.parse_spec(spec), schedule).bytes()


def info(spec=None, *, target=None):
    """What `normjit info` shows, as a dict: the program, its devices and variables; with a spec, what it leads to."""
    import json  # here, as below: importing normjit shall take milliseconds

    words = ["info", "--json"]
    words += [] if target is None else ["--target", _library.encoded("target", target)]
    words += [] if spec is None else ["--", _library.encoded("spec", spec)]  # also of one that starts with a dash
    return json.loads(_run(words, captured=True))


def tune(shapes, output, *, device="cpu", budget=None):
    """Measures schedules for a file of specs, a line each, and adds what is fastest to the file `output`, for
    NORMJIT_RECORDS: `normjit tune`, which shows its progress on stderr. `budget`: how long at most, "10m"."""
    words = ["tune", "-o", _path("output", output), "--device", _library.encoded("device", device)]
    words += [] if budget is None else ["--budget", _library.encoded("budget", budget)]
    _run([*words, "--", _path("shapes", shapes)], captured=False)


def _path(name, path):
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise _library.InvalidArgument(f"{name}: is {type(path).__name__}; must be a path") from None
    return _library.encoded(name, text)


def _run(words, captured):
    """The program's results; where they are not captured, its messages are shown as they come."""
    import subprocess

    path = [os.path.dirname(_library.FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    streams = {"capture_output": True} if captured else {"stdout": subprocess.DEVNULL}
    done = subprocess.run([sys.executable, "-m", "normjit", *words],
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(path)}, **streams)
    if done.returncode:
        message = (done.stderr or b"").decode().strip() or f"normjit {words[0]} ended with exit code {done.returncode}"
        raise EXIT_ERRORS.get(done.returncode, _library.Error)(message)
    return done.stdout
