# SPDX-License-Identifier: Apache-2.0
"""Transformers of a few layers, like two kinds of public models, for measurements. They need only torch."""
import torch
from torch import nn
from torch.nn import functional

HEAD = 64


class LlamaNorm(nn.Module):
    """RMSNorm in torch's operators with the rounding of Hugging Face's Llama."""

    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * h.to(x.dtype)


class GptMlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(functional.gelu(self.up(x), approximate="tanh"))


class LlamaMlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        inner = (8 * width // 3 + 255) // 256 * 256
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width, kind):
        super().__init__()
        make_norm, make_mlp = (nn.LayerNorm, GptMlp) if kind == "gpt2" else (LlamaNorm, LlamaMlp)
        self.ln_1, self.ln_2, self.mlp = make_norm(width), make_norm(width), make_mlp(width)
        self.qkv, self.out = (nn.Linear(width, n, bias=kind == "gpt2") for n in (3 * width, width))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (-1, HEAD)).transpose(1, 2) for t in self.qkv(self.ln_1(x)).chunk(3, dim=-1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    """kind: "gpt2" (LayerNorm, GELU, biases) or "llama" (RMSNorm, SwiGLU). Positions are learnt in both."""

    def __init__(self, kind, width, layers, vocabulary, tokens):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.h = nn.ModuleList(Block(width, kind) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width) if kind == "gpt2" else LlamaNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        """Returns the loss of predicting each token from earlier ones."""
        x = self.tokens(ids[:, :-1]) + self.places.weight[: ids.shape[1] - 1]
        for block in self.h:
            x = block(x)
        logits = self.head(self.ln_f(x)).flatten(0, 1)
        wide = torch.promote_types(logits.dtype, torch.float32)
        return functional.cross_entropy(logits.to(wide), ids[:, 1:].flatten())


def make(kind, width, layers, vocabulary, tokens, dtype=torch.bfloat16, device="cpu"):
    """Returns a model that has the same random weights for the same arguments. Its norms have weights as if trained."""
    torch.manual_seed(0)
    model = Transformer(kind, width, layers, vocabulary, tokens)
    for norm in (each for each in model.modules() if isinstance(each, (nn.LayerNorm, LlamaNorm))):
        nn.init.normal_(norm.weight, 1.0, 0.1)
        if kind == "gpt2":
            nn.init.normal_(norm.bias, 0.0, 0.1)
    return model.to(device, dtype)
