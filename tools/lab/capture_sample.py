#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Captures norm-backward problems from real training steps into a safetensors file.

Trains a small byte-level transformer per variant (PyTorch, CPU) and records, at one step, the inputs of chosen norm
layers and PyTorch's results for them. The bytes are the same on every run with one PyTorch version.

    python3 tools/lab/capture_sample.py tests/data/sample.safetensors

Tensors of group g: g.x, g.dy, g.gamma; g.mean and g.rstd, for LayerNorm the values that PyTorch saved for its
backward; g.dresidual where the residual branch joins; g.expected.dx, g.expected.dgamma and g.expected.dbeta from PyTorch. The metadata has
"g.spec".
"""
import argparse
import codecs
import contextlib
import io
import json
import math
import struct

import torch
import torch.nn.functional as F

BATCH, SEQ, LAYERS, HEADS, STEPS = 4, 24, 2, 4, 40
LAYERNORM_EPS, RMSNORM_EPS = 1e-5, 1e-6
DTYPE_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64"}


def training_text():
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    return torch.tensor(list(codecs.decode(this.s, "rot13").encode()))


class Norm(torch.nn.Module):
    """LayerNorm or RMSNorm that keeps the inputs of its backward pass."""

    def __init__(self, kind, width, dtype):
        super().__init__()
        self.kind = kind
        self.gamma = torch.nn.Parameter(torch.ones(width, dtype=dtype))
        self.beta = torch.nn.Parameter(torch.zeros(width, dtype=dtype)) if kind == "layernorm" else None

    def forward(self, x):
        self.x = x.view_as(x)  # its gradient is only the norm's, without that of the residual branch
        width = self.gamma.shape
        if self.kind == "layernorm":
            self.y = F.layer_norm(self.x, width, self.gamma, self.beta, LAYERNORM_EPS)
            node = self.y.grad_fn
            self.mean, self.rstd = node._saved_result1, node._saved_result2
        else:
            self.y = F.rms_norm(self.x, width, self.gamma, RMSNORM_EPS)
            self.rstd = torch.rsqrt(self.x.detach().float().square().mean(-1, keepdim=True) + RMSNORM_EPS)
        for tensor in (self.x, self.y):
            if tensor.requires_grad:
                tensor.retain_grad()
        return self.y

    def record(self):
        tensors = {"x": self.x, "dy": self.y.grad, "gamma": self.gamma, "rstd": self.rstd.squeeze(-1)}
        tensors |= {"expected.dx": self.x.grad, "expected.dgamma": self.gamma.grad}
        if self.kind == "layernorm":
            tensors |= {"mean": self.mean.squeeze(-1), "expected.dbeta": self.beta.grad}
        return tensors


class Block(torch.nn.Module):
    def __init__(self, kind, width, dtype, norm_dtype):
        super().__init__()
        self.norm1, self.norm2 = Norm(kind, width, norm_dtype), Norm(kind, width, norm_dtype)
        self.qkv = torch.nn.Linear(width, 3 * width, dtype=dtype)
        self.out = torch.nn.Linear(width, width, dtype=dtype)
        self.up = torch.nn.Linear(width, 4 * width, dtype=dtype)
        self.down = torch.nn.Linear(4 * width, width, dtype=dtype)

    def forward(self, x):
        heads = [t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1)]
        attention = F.scaled_dot_product_attention(*heads, is_causal=True)
        self.middle = x + self.out(attention.transpose(1, 2).flatten(-2))
        self.end = self.middle + self.down(F.gelu(self.up(self.norm2(self.middle))))
        self.middle.retain_grad()
        self.end.retain_grad()
        return self.end

    def record_norm2_with_residual(self):
        """Records norm2 fused with the residual sum after it. dx is the whole gradient of norm2's input."""
        return self.norm2.record() | {"dresidual": self.end.grad, "expected.dx": self.middle.grad}


class Transformer(torch.nn.Module):
    def __init__(self, kind, width, dtype, norm_dtype):
        super().__init__()
        self.tokens = torch.nn.Embedding(256, width, dtype=dtype)
        self.positions = torch.nn.Embedding(SEQ, width, dtype=dtype)
        self.blocks = torch.nn.ModuleList([Block(kind, width, dtype, norm_dtype) for _ in range(LAYERS)])
        self.norm = Norm(kind, width, norm_dtype)
        self.head = torch.nn.Linear(width, 256, bias=False, dtype=dtype)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(SEQ))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).float()


def train(kind, width, dtype, norm_dtype):
    """Returns the model right after the backward pass of the last step."""
    torch.manual_seed(20)
    text = training_text()
    model = Transformer(kind, width, dtype, norm_dtype)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(STEPS):
        starts = torch.randint(len(text) - SEQ - 1, (BATCH,))
        batch = torch.stack([text[s : s + SEQ + 1] for s in starts.tolist()])
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        if step + 1 < STEPS:
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    optimiser.zero_grad()
    loss.backward()
    print(f"{kind} {width} {dtype}: loss {loss.item():.3f} (uniform guess {math.log(256):.3f})")
    return model


def write_safetensors(path, tensors, metadata):
    header, payload = {"__metadata__": metadata}, b""
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        data = tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {
            "dtype": DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(payload), len(payload) + len(data)],
        }
        payload += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + payload)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    f32, bf16 = torch.float32, torch.bfloat16
    layernorm, rmsnorm = f"layernorm eps={LAYERNORM_EPS}", f"rmsnorm eps={RMSNORM_EPS}"
    groups = {}
    model = train("layernorm", 96, f32, f32)
    groups["layernorm_f32.block1.norm1"] = layernorm, model.blocks[1].norm1.record()
    model = train("layernorm", 96, bf16, bf16)
    groups["layernorm_bf16.block1.norm1"] = layernorm, model.blocks[1].norm1.record()
    model = train("layernorm", 96, bf16, f32)
    groups["layernorm_mixed.norm"] = layernorm, model.norm.record()
    model = train("rmsnorm", 120, f32, f32)
    groups["rmsnorm_f32.block0.norm2"] = rmsnorm, model.blocks[0].record_norm2_with_residual()
    model = train("rmsnorm", 120, bf16, bf16)
    groups["rmsnorm_bf16.block0.norm1"] = rmsnorm, model.blocks[0].norm1.record()
    groups["rmsnorm_bf16.block0.norm2"] = rmsnorm, model.blocks[0].record_norm2_with_residual()

    tensors = {f"{group}.{name}": t for group, (_, parts) in groups.items() for name, t in parts.items()}
    metadata = {f"{group}.spec": spec for group, (spec, _) in groups.items()}
    metadata["producer"] = f"tools/lab/capture_sample.py, PyTorch {torch.__version__.split('+')[0]}"
    write_safetensors(args.output, tensors, metadata)


if __name__ == "__main__":
    main()
