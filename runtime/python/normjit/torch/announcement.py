# SPDX-License-Identifier: Apache-2.0
"""Lets torch.compile(backend="normjit") find the backend once normjit.torch is imported, even if the package is not
installed and has no entry points. It does not import torch._dynamo, which takes seconds."""
from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterable
from typing import Any

GROUP, NAME, BACKEND = "torch_dynamo_backends", "normjit", "normjit.torch.graph:backend"


class _Package(importlib.metadata.Distribution):
    """A package of this name with the entry point that pyproject.toml gives the wheel."""

    def read_text(self, filename: str) -> str | None:
        from normjit import __version__

        return {"METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {__version__}\n",
                "entry_points.txt": f"[{GROUP}]\n{NAME} = {BACKEND}\n"}.get(filename)

    def locate_file(self, path: Any) -> Any:
        return path


class _Finder(importlib.metadata.DistributionFinder):
    def find_spec(self, *_: Any, **__: Any) -> None:
        return None

    def find_distributions(self, context: Any = importlib.metadata.DistributionFinder.Context()) -> Iterable[Any]:
        return [_Package()] if context.name in (None, NAME) else []


def announce() -> None:
    """Announces the backend to torch: now if torch has already searched for backends, else when it does."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.append(_Finder())  # an installed package comes first
    backends = getattr(sys.modules.get("torch._dynamo.backends.registry"), "_BACKENDS", None)
    if backends is not None:
        backends.setdefault(NAME, importlib.metadata.EntryPoint(NAME, BACKEND, GROUP))
