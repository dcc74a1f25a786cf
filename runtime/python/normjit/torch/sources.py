# SPDX-License-Identifier: Apache-2.0
"""What the code of a module can depend on in addition to its input, parameters and attributes: global variables, whose
changes no probe sees."""
import dis
import inspect
import types

import torch

FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, torch.jit.ScriptFunction,
             torch._ops.OpOverload, torch._ops.OpOverloadPacket)
VALUES = (torch.dtype, torch.device, torch.layout, torch.memory_format)
KNOWN = ("torch", "math", "typing", "builtins", "functools", "einops", "numpy")  # packages whose state is not examined
TABLES = ("transformers.activations",)  # modules whose classes are tables of functions that never change
MOST_FUNCTIONS = 64  # the most functions that one forward() may lead to


def variable_read(functions):
    """Describes the first thing that may change from call to call and that is read by one of these Python functions,
    or by one that they call by name; None if there is nothing."""
    waiting, seen = list(functions), set()
    while waiting:
        function = inspect.unwrap(waiting.pop())
        if not isinstance(function, types.FunctionType) or function in seen or _is_known(function.__module__):
            continue
        seen.add(function)
        if len(seen) > MOST_FUNCTIONS:
            return "more functions than are looked through"
        for name, value in _variables(function):
            if not _is_fixed(value):
                return f"the variable {name}, which may change"
            if isinstance(value, types.FunctionType):
                waiting.append(value)
    return None


def _variables(function):
    """Returns (name, value) of the global and captured variables that a Python function reads."""
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        waiting += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        names = {each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        yield from ((name, function.__globals__[name]) for name in sorted(names & function.__globals__.keys()))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:  # the variable is still empty
            continue


def _is_fixed(value):
    if isinstance(value, types.ModuleType):
        return _is_known(value.__name__)
    if isinstance(value, type):  # a class's attributes may change, unless its only use is to be called
        return _is_known(value.__module__) or issubclass(value, (torch.autograd.Function, torch.nn.Module))
    return isinstance(value, FUNCTIONS + VALUES) or type(value).__module__ in TABLES


def _is_known(module):
    return module is not None and module.split(".")[0] in KNOWN
