# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy transformers
"""The norm classes of all models of transformers: most are recognised, except those without weight or with an
adaptive one."""
import importlib
import inspect
import pathlib
import warnings

import normjit.torch
import torch
import transformers.models
from rounds import rounds

WAYS_TO_MAKE = [(64,), (64, 1e-6), (), (torch.nn.Module(),)]


# Imports take most of the time: with NORMJIT_TEST_ROUNDS=25%, only every fourth file is tried.
STEP = round(100 / rounds(100))


def classes():
    """Returns the norm classes of the files that can be imported here, by name."""
    for path in sorted(pathlib.Path(transformers.models.__path__[0]).glob("*/modeling_*.py"))[::STEP]:
        name = f"transformers.models.{path.parent.name}.{path.stem}"
        try:
            module = importlib.import_module(name)
        except (ImportError, RuntimeError):
            continue  # it needs packages that are missing here
        for each in vars(module).values():
            if inspect.isclass(each) and issubclass(each, torch.nn.Module) and each.__module__ == name:
                if each.__name__.endswith(("Norm", "RMSNormGated")):
                    yield each


def made(kind):
    for arguments in WAYS_TO_MAKE:
        try:
            return kind(*arguments)
        except Exception:
            continue  # it needs other arguments
    return None


def test_classes():
    recognised, wrong = set(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in classes():
            module = made(kind)
            for found in normjit.torch.found(torch.nn.Sequential(module)) if module is not None else ():
                if found.name == "0" and found.norm is not None:
                    recognised.add(kind)
                    wrong += [kind.__name__ for word in ("Unweighted", "Ada") if word in kind.__name__]
    assert not wrong
    assert len(recognised) >= 220 / STEP * (1 if STEP == 1 else 0.8)  # 225 of transformers 5.23
