# SPDX-License-Identifier: Apache-2.0
"""Evaluates formulas with the operations of a framework for arrays, which can differentiate them further."""
from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from normjit._library import InvalidArgument

USUAL = {"eps": 1e-5, "gamma_offset": 0.0, "inf": math.inf, "nan": math.nan}  # numbers that have a default
NUMBERS = {"group_max": 1, "pow": 1}  # how many of the last operands are numbers


@functools.lru_cache(maxsize=None)
def statements(text: str) -> list[tuple[str, ast.expr]]:
    """Returns the values that the body of a formula names, in order."""
    body = text.partition("{")[2].rpartition("}")[0]
    names = re.sub(r"(?<![\w.])([A-Za-z_]\w*)", r"\1_", body).replace("^", "**")  # no name is then a keyword of Python
    parsed = [ast.parse(each.strip()).body[0] for each in names.split(";") if each.strip()]
    return [(each.targets[0].id[:-1], each.value) for each in parsed
            if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)]


def _quotient(a: Any, b: Any) -> Any:
    if not isinstance(a, float) or not isinstance(b, float) or b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


OPERATORS: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", lambda a, b: a + b), ast.Sub: ("-", lambda a, b: a - b),
    ast.Mult: ("*", lambda a, b: a * b), ast.Div: ("/", _quotient)}  # and ast.Pow, which is pow()


class Evaluation:
    """Computes expressions. A value is an array, a Python float, or None, if it is missing or was computed only from
    missing values.

    values     the values by name
    functions  the framework's functions by the names that formulas have for them
    array_of   makes an array of the compute type from a float"""

    def __init__(self, values: dict[str, Any], functions: Mapping[str, Callable[..., Any]],
                 array_of: Callable[[float], Any]) -> None:
        self.values, self.functions, self.array_of = values, functions, array_of

    def run(self, text: str) -> None:
        """Adds the values that a formula names to `values`."""
        for name, expression in statements(text):
            self.values[name] = self.of(expression)

    def of(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return float(node.value)  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            name = node.id[:-1]
            if name not in self.values:
                raise InvalidArgument(f"'{name}' is neither a tensor nor an earlier value; a number is given as {name}=NUMBER")
            return self.values[name]
        if isinstance(node, ast.UnaryOp):
            inner = self.of(node.operand)
            return None if inner is None else -inner
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            return self.applied("pow", [self.of(node.left), self.of(node.right)])
        if isinstance(node, ast.BinOp):
            return self.combined(node)
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name), ast.dump(node)
        return self.applied(node.func.id[:-1], [self.of(each) for each in node.args])

    def combined(self, node: ast.BinOp) -> Any:
        symbol, function = OPERATORS[type(node.op)]
        a, b = self.of(node.left), self.of(node.right)
        if a is not None and b is not None:
            return function(a, b)
        other = b if a is None else a
        if other is None or isinstance(other, float):
            return None
        if b is None or symbol in "+*":
            return other
        return 1 / other if symbol == "/" else -other

    def applied(self, name: str, operands: list[Any]) -> Any:
        if any(each is None for each in operands):
            return None
        values = len(operands) - NUMBERS.get(name, 0)
        return self.functions[name](*(self.array_of(each) if isinstance(each, float) and i < values else each
                                      for i, each in enumerate(operands)))
