# SPDX-License-Identifier: Apache-2.0
"""A plugin for pytest that runs the Python package's PyTorch tests on a GPU: tensors for which a test names no device
are made there."""
import torch


def _on_gpu(make):
    def made(*shape, generator=None, **options):
        if generator is None:
            return make(*shape, **{"device": "cuda", **options})
        return make(*shape, generator=generator, **{**options, "device": generator.device}).cuda()

    return made


if not torch.cuda.is_available():
    raise RuntimeError("gpu_tensors: torch sees no CUDA GPU")
torch.set_default_device("cuda")
torch.randn, torch.rand = _on_gpu(torch.randn), _on_gpu(torch.rand)
