# SPDX-License-Identifier: Apache-2.0
"""normjit's operators on DTensors. Rows may be sharded, along any dimension except the normalised ones; gradients of
weights are then partial sums on each rank."""
import sys

import torch

_known = set()  # contains DTensor once torch has the sharding rules of our operators


def is_dtensor(tensor):
    if type(tensor) in (torch.Tensor, torch.nn.Parameter) or "torch.distributed.tensor" not in sys.modules:
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def prepare_for(tensor):
    """Gives torch the sharding rules of our operators when the first tensor arrives that may be sharded."""
    if not _known and is_dtensor(tensor):
        _register(type(tensor))


def _register(kind):
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
    from torch.distributed.tensor.experimental import register_sharding

    def each(x, normalized_shape, rules):
        """Returns the ways to shard a call: every rank has everything, or the rows are sharded along one of their
        dimensions."""
        return [rules(placement) for placement in (
            Replicate(), *(Shard(i) for i in range(x.ndim - len(normalized_shape))))]

    def like(rows, *tensors):
        return [None if t is None else rows for t in tensors]

    def weights(rows, *tensors, gradient=False):
        """Returns how weights are sharded: with the rows if they have a row for each element of that dimension."""
        of_all = Partial() if gradient and rows.is_shard() else Replicate()
        return [None if t is None else rows if rows.is_shard() and rows.dim < t.ndim - 1 else of_all for t in tensors]

    def layer_norm_backward(dy, x, shape, mean, rstd, weight, bias, dresidual, eps, weight_offset, mask):
        beta_like = weight if bias is None else bias
        return each(x, shape, lambda rows: (
            _wanted(mask, [rows, *weights(rows, weight, beta_like, gradient=True)]),
            [rows, rows, None, *like(rows, mean, rstd), *weights(rows, weight, bias), *like(rows, dresidual), None, None,
             None]))

    def rms_norm_backward(dy, x, shape, rstd, weight, dresidual, eps, weight_offset, mask):
        return each(x, shape, lambda rows: (
            _wanted(mask, [rows, *weights(rows, weight, gradient=True)]),
            [rows, rows, None, *like(rows, rstd), *weights(rows, weight), *like(rows, dresidual), None, None, None]))

    def layer_norm(x, residual, shape, weight, bias, eps, weight_offset, statistics):
        return each(x, shape, lambda rows: (
            [rows, *like(rows, residual), *[rows if statistics else None] * 2],
            [rows, *like(rows, residual), None, *weights(rows, weight, bias), None, None, None]))

    def rms_norm(x, residual, shape, weight, eps, weight_offset, statistics):
        return each(x, shape, lambda rows: (
            [rows, *like(rows, residual), rows if statistics else None],
            [rows, *like(rows, residual), None, *weights(rows, weight), None, None, None]))

    for rules in (layer_norm_backward, rms_norm_backward, layer_norm, rms_norm):
        operator = getattr(torch.ops.normjit, rules.__name__).default
        register_sharding(operator)(rules)
        # Torch caches its rules for a call by the tensors and all arguments from the third on, because the results
        # depend on the mask.
        kind._op_dispatcher.sharding_propagator.op_to_schema_info[operator] = RuntimeSchemaInfo(2, needs_pytree=True)
    _known.add(kind)


def _wanted(mask, placements):
    return [placement if wanted else None for wanted, placement in zip(mask, placements)]
