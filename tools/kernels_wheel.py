#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel that contains only compiled kernels. The package normjit finds them if the wheel is installed with it,
and the first backward pass of a process then does not wait for a compiler. Make it on a GPU of the kind that it is for,
with the same normjit:

    tools/kernels_wheel.py specs > specs.txt          # the usual norms of torch; NORMJIT_CAPTURE writes a program's own
    normjit cache fill specs.txt --device cuda:0 --dir warm && normjit cache pack --dir warm -o sm_90.pack
    tools/kernels_wheel.py wheel sm_90.pack           # normjit_kernels_sm_90-VERSION-py3-none-any.whl

Kernels of another normjit or another kind of GPU are ignored."""
import argparse
import base64
import hashlib
import itertools
import pathlib
import re
import zipfile

ROOT = pathlib.Path(__file__).parents[1]
COLUMNS = (768, 1024, 2048, 3072, 4096, 5120, 8192)
ROWS = (1024, 4096, 16384)
TYPES = ("x=bf16", "x=bf16 gamma=f32", "x=f32")
EPSILONS = {"layernorm": ("",), "rmsnorm": ("", " eps=1e-06")}  # the eps of specs that compute statistics; the default
                                                                # is 1e-5
OUTPUTS = {"layernorm": "mean,rstd,y", "rmsnorm": "rstd,y"}


def specs():
    """Returns the specs that normjit.torch requests: the backward passes of enable(), patch(), layer_norm() and
    rms_norm(), and the latter two norms themselves, with and without a residual stream."""
    for norm, types, cols, rows in itertools.product(OUTPUTS, TYPES, COLUMNS, ROWS):
        x = types.split()[0].removeprefix("x=")
        problem = f"rows=~{rows} cols={cols} {types}"
        yield f"{norm} {problem}"
        yield f"{norm} {problem} dresidual={x}"
        for eps in EPSILONS[norm]:
            yield f"{norm} {problem} stats=recompute{eps}"
            yield f"{norm} pass=forward {problem} out={OUTPUTS[norm]}{eps}"
            yield f"{norm} pass=forward {problem} residual={x} out={OUTPUTS[norm]},h{eps}"


def version():
    return re.search(r"project\(normjit VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def write_wheel(pack, folder):
    kind = re.sub(r"[^A-Za-z0-9]+", "_", pack.stem)  # a hyphen ends a wheel's name, and a colon a pack's in a list
    name = f"normjit_kernels_{kind}"
    info = f"{name}-{version()}.dist-info"
    files = {
        f"normjit_kernels/{kind}.pack": pack.read_bytes(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version()}\nLicense: Apache-2.0\n"
                            f"Summary: Kernels of normjit, compiled for {kind}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: normjit\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    hashes = {path: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
              for path, data in files.items()}
    rows = [f"{path},sha256={hashes[path]},{len(data)}" for path, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    path = folder / f"{name}-{version()}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for each, data in files.items():
            wheel.writestr(each, data)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("specs", help="print the specs of usual norms")
    wheel = actions.add_parser("wheel", help="put a pack into a wheel")
    wheel.add_argument("pack", type=pathlib.Path, help="named after the GPU: sm_90.pack")
    wheel.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("."), help="the folder [.]")
    options = parser.parse_args()
    if options.action == "specs":
        print("\n".join(specs()))
    elif not options.pack.is_file():
        parser.error(f"{options.pack}: is no file; normjit cache pack writes one")
    else:
        path = write_wheel(options.pack, options.output)
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
