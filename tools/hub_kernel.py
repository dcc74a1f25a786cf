#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hub_kernel.py FOLDER [--package NORMJIT]: writes normjit as a noarch torch kernel for Hugging Face's `kernels`.
kernelize() then puts its layers into models:

    python tools/hub_kernel.py normjit-kernel        # of the normjit that this interpreter imports
    layer = kernels.LocalLayerRepository(pathlib.Path("normjit-kernel"), layer_name="RMSNorm")
    with kernels.use_kernel_mapping({"RMSNorm": {"cuda": layer}}):
        model = kernels.kernelize(model, mode=kernels.Mode.TRAINING)

For a model on a CPU the key is "cpu". kernelize() finds the norms by names that transformers gives their classes, but
transformers does so only for versions of `kernels` that it knows. With other versions kernelize() silently changes
nothing; name the norms yourself:

    kernels.replace_kernel_forward_from_hub(LlamaRMSNorm, "RMSNorm")

The folder is self-contained, also as a repository of the hub: it has a copy of the package, which is used if no normjit
is installed. The layers are those of normjit/torch/hub.py. The copy's libraries are for one kind of machine."""
import argparse
import importlib.util
import json
import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).parents[1]
BACKENDS = ("cpu", "cuda")
BUILD = """[general]
name = "normjit"
edition = 5
version = 1
license = "Apache-2.0"
backends = [{backends}]

[torch-noarch]
"""
KERNEL = '''# SPDX-License-Identifier: Apache-2.0
"""normjit's norms as layers for kernelize(). An installed normjit is taken first, else the copy beside this file."""
import importlib.util
import os
import sys

if importlib.util.find_spec("normjit") is None:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
from normjit.torch import hub as layers  # noqa: E402

__all__ = ["layers"]
'''


def package_of(given):
    """Returns the folder of the package: the given one, or the one that this interpreter imports."""
    found = importlib.util.find_spec("normjit")
    if not given and (found is None or found.origin is None):
        sys.exit("hub_kernel.py: this interpreter has no normjit; give the folder of a built package as --package")
    folder = pathlib.Path(given or found.origin.removesuffix("__init__.py")).absolute()
    if not (folder / "libnormjit.so").exists():
        sys.exit(f"hub_kernel.py: {folder}: has no libnormjit.so; give the folder of a built package as --package")
    return folder


def write(folder, package):
    (folder / "build.toml").write_text(BUILD.format(backends=", ".join(f'"{each}"' for each in BACKENDS)))
    source = folder / "torch-ext" / "normjit"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text(KERNEL)
    for backend in BACKENDS:
        variant = folder / "build" / f"torch-{backend}"
        shutil.copytree(package, variant / "normjit", ignore=shutil.ignore_patterns("__pycache__"))
        (variant / "__init__.py").write_text(KERNEL)
        facts = {"id": f"_normjit_{backend}_1", "name": "normjit", "version": 1, "license": "Apache-2.0",
                 "python-depends": [], "backend": {"type": backend}}
        (variant / "metadata.json").write_text(json.dumps(facts, indent=2) + "\n")
    shutil.copy(ROOT / "LICENSE", folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="must be new or empty")
    parser.add_argument("--package", help="the folder of the package, with its libraries")
    options = parser.parse_args()
    package = package_of(options.package)
    if options.folder.exists() and (not options.folder.is_dir() or any(options.folder.iterdir())):
        sys.exit(f"hub_kernel.py: {options.folder}: is there already; give a new folder")
    options.folder.mkdir(parents=True, exist_ok=True)
    write(options.folder, package)
    print(f"{options.folder}: {', '.join(f'build/torch-{each}' for each in BACKENDS)}")


if __name__ == "__main__":
    main()
