# SPDX-License-Identifier: Apache-2.0
"""The tensors of one line of a shapes file on a GPU, its formula in torch code, and what it must read and write."""
import torch

EPS = 1e-5
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
KEYS = {"pass", "rows", "cols", "x", "gamma", "residual", "dresidual", "slices", "per_slice", "accumulate", "dgamma", "dbeta"}
CHECKED_ROWS = 64


def specs_of(path):
    """Returns the lines of a shapes file without comments."""
    with open(path) as file:
        return [spec for line in file if (spec := line.split("#")[0].strip())]


class Problem:
    """The filled tensors of one line of a shapes file. Matrices are [rows, cols], or [slices, rows, cols] with a gamma and
    beta of [slices, cols]."""

    def __init__(self, spec):
        words = spec.split()
        keys = dict(word.split("=") for word in words[1:])
        self.spec, self.norm = spec, words[0]
        self.is_forward = keys.get("pass") == "forward"
        self.is_layernorm = self.norm == "layernorm"
        self.rows, self.cols = int(keys["rows"]), int(keys["cols"])
        self.slices = int(keys["slices"]) if "slices" in keys else None
        weights = "gamma,beta" if self.is_layernorm else "gamma"
        sums = [f"d{name}" for name in weights.split(",")]
        if (set(keys) - KEYS or keys.get("per_slice", weights) != weights or ("slices" in keys) != ("per_slice" in keys)
                or keys.get("accumulate", ",".join(sums)) != ",".join(sums) or "accumulate" not in keys and set(keys) & set(sums)):
            raise ValueError("a key that the peers have no word for")
        dtype, weight_dtype = DTYPES[keys["x"]], DTYPES[keys.get("gamma", keys["x"])]
        torch.manual_seed(1)
        lead = () if self.slices is None else (self.slices,)
        make = lambda scale, mean, type_=dtype: torch.empty(*lead, self.rows, self.cols, device="cuda",
                                                            dtype=type_).normal_(mean, scale)
        self.x = make(1, 0.5)
        self.dy = None if self.is_forward else make(1, 0)
        self.residual = make(1, 0, DTYPES[keys["residual"]]) if "residual" in keys else None
        self.dresidual = make(1, 0, DTYPES[keys["dresidual"]]) if "dresidual" in keys else None
        self.dx = torch.empty_like(self.x)  # holds y in a forward pass
        self.gamma = torch.empty(*lead, self.cols, device="cuda", dtype=weight_dtype).normal_(1, 0.1)
        self.beta = torch.zeros_like(self.gamma)
        self.into = {}  # with accumulate=: what the sums are added to, by name
        if "accumulate" in keys:
            self.into = {name: torch.zeros_like(self.gamma, dtype=DTYPES[keys.get(name, keys["x"])]) for name in sums}
        self.mean, self.rstd = (None, None) if self.is_forward else self.statistics()

    def statistics(self):
        """Returns mean and rstd, one value for each row."""
        mean, rstd = (torch.zeros(self.x.shape[:-1], device="cuda") for _ in range(2))
        step = max(1, (64 << 20) // self.cols)
        rows = self.x.view(-1, self.cols)
        for i in range(0, rows.shape[0], step):
            part = rows[i : i + step].float()
            if self.is_layernorm:
                mean.view(-1)[i : i + step] = part.mean(-1)
                part -= mean.view(-1)[i : i + step, None]
            rstd.view(-1)[i : i + step] = torch.rsqrt(part.square().mean(-1) + EPS)
        return mean, rstd

    def bytes(self):
        """Returns what a pass must read and write of matrices."""
        read = [each for each in (self.x, self.dy, self.residual, self.dresidual) if each is not None]
        written = [self.dx] if self.residual is None else [self.dx, self.residual]
        return sum(each.numel() * each.element_size() for each in read + written)

    def ceiling(self):
        """Returns a name, a function that reads and writes whole matrices, and the bytes that it moves."""
        size = self.x.numel() * self.x.element_size()
        if self.is_forward:
            return "torch.neg", lambda: torch.neg(self.x, out=self.dx), 2 * size
        return "torch.add", lambda: torch.add(self.x, self.dy, out=self.dx), 3 * size

    def is_plain(self):
        """True if the problem has only the tensors of a norm itself."""
        return self.slices is None and self.residual is None and self.dresidual is None and not self.into

    def require_plain(self):
        if not self.is_plain():
            raise ValueError("no slices, no residual and no accumulation")

    def inputs(self):
        """Returns the arguments of composite()."""
        if self.is_forward:
            return self.x, self.gamma, self.beta, self.residual
        return self.dy, self.x, self.gamma, self.mean[..., None], self.rstd[..., None], self.dresidual, *self.into.values()

    def composite(self):
        """Returns the formula in torch code: y, with a residual also h; or the gradients from saved statistics."""
        of_slice = (lambda each: each) if self.slices is None else (lambda each: each.unsqueeze(-2))

        def forward(x, gamma, beta, residual):
            h = x.float() if residual is None else x.float() + residual.float()
            if self.is_layernorm:
                centred = h - h.mean(-1, keepdim=True)
                rstd = torch.rsqrt(centred.square().mean(-1, keepdim=True) + EPS)
                y = centred * rstd * of_slice(gamma.float()) + of_slice(beta.float())
            else:
                y = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + EPS) * of_slice(gamma.float())
            return (y.to(x.dtype),) if residual is None else (y.to(x.dtype), h.to(residual.dtype))

        def backward(dy, x, gamma, mean, rstd, dresidual, *into):
            dy, x, weight = dy.float(), x.float(), of_slice(gamma.float())
            xhat = (x - mean if self.is_layernorm else x) * rstd
            g = dy * weight
            inner = g - xhat * (g * xhat).mean(-1, keepdim=True)
            if self.is_layernorm:
                inner = inner - g.mean(-1, keepdim=True)
            dx = inner * rstd if dresidual is None else inner * rstd + dresidual.float()
            sums = (dy * xhat, dy) if self.is_layernorm else (dy * xhat,)
            if not into:
                return (dx.to(self.x.dtype), *(each.sum(-2).to(gamma.dtype) for each in sums))
            for held, each in zip(into, sums):
                held += each.sum(-2)
            return (dx.to(self.x.dtype), *into)

        return forward if self.is_forward else backward

    def check(self, result):
        """Fails if dx or y of the first rows is not what the formula makes of them."""
        def first(each):
            if each is None or each.shape[-1] == self.cols and each.dim() < self.x.dim():
                return each if each is None else each.double()
            return each[..., :CHECKED_ROWS, :].double()
        wanted = self.composite()(*map(first, self.inputs()))[0].double()
        wrong = (result[..., :CHECKED_ROWS, :].double() - wanted).abs().max() / wanted.abs().max()
        if not wrong < 2e-2:
            raise ValueError(f"its result is wrong by {wrong:.2g} of the largest")
