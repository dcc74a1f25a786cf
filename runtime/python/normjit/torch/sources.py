# SPDX-License-Identifier: Apache-2.0
"""Finds the global variables that a module's code reads in addition to its input, parameters and attributes. Probes
cannot see their changes."""
import dis
import inspect
import sys
import types
import weakref

import torch

from normjit.torch.probes import Refused, is_constant, is_other

FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, torch.jit.ScriptFunction,
             torch._ops.OpOverload, torch._ops.OpOverloadPacket)
READ = (bool, int, float, str)  # types of attributes that may change between calls
VALUES = (torch.dtype, torch.device, torch.layout, torch.memory_format)
KNOWN = ("torch", "math", "typing", "builtins", "functools", "einops", "numpy")  # packages whose state is not examined
TABLES = ("transformers.activations",)  # modules whose classes are tables of functions that never change
MOST_FUNCTIONS = 64  # the most functions that one forward() may lead to


def variables_read(functions):
    """Returns the global constants that these Python functions read, as (module, name, value), including those that are
    read by functions which they call by name. Raises Refused if they read anything else that may change from call to
    call."""
    waiting, seen, constants, stored = list(functions), set(), {}, set()
    while waiting:
        function = inspect.unwrap(waiting.pop())
        if not isinstance(function, types.FunctionType) or function in seen or _is_known(function.__module__):
            continue
        seen.add(function)
        if len(seen) > MOST_FUNCTIONS:
            raise Refused("it calls more functions than are examined")
        module, names = _module_of(function), _names(function, "STORE_GLOBAL", "DELETE_GLOBAL")
        stored.update((module, name) for name in names)
        for name, value, is_global in _variables(function):
            if is_global and module is not None and is_constant(value):
                constants[module, name] = value
            elif not _is_fixed(value):
                raise _may_change(name)
            if isinstance(value, types.FunctionType):
                waiting.append(value)
    for module, name in constants.keys() & stored:
        raise _may_change(name)
    return tuple((module, name, value) for (module, name), value in constants.items())


def changed(variables):
    """Returns the name of the first of these (module, name, value) whose value has changed, or None."""
    for module, name, value in variables:
        found = vars(sys.modules[module]) if module in sys.modules else {}
        if is_other(found.get(name, found), value):
            return name
    return None


# This does what torch.compiler.assume_constant_result() does; see operators.serves().
changed._dynamo_marked_constant = True


def names(function, word):
    """True if the code of a Python function uses a name, either its own or an attribute of something."""
    function = inspect.unwrap(function) if callable(function) else function
    return isinstance(function, types.FunctionType) and word in _names(function, "LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD")


def attributes_read(function):
    """Returns the names of attributes, of any object, that the code of a Python function reads but does not set."""
    function = inspect.unwrap(function)
    if not isinstance(function, types.FunctionType):
        return ()
    return tuple(sorted(_names(function, "LOAD_ATTR") - _names(function, "STORE_ATTR", "DELETE_ATTR")))


def key_of(value, names=()):
    """Returns a key for a constant. It distinguishes constants that compare equal but behave differently: True, 1 and
    1.0, or 0.0 and -0.0. An object that is equal to itself only, such as the module of a method, is not kept alive; the
    key contains its attributes of these names, such as `training`, if they are numbers or texts."""
    kind = type(value)
    if isinstance(value, (tuple, list)):
        return kind, *[key_of(each, names) for each in value]
    if isinstance(value, (float, complex)):
        return kind, value, repr(value)
    if kind.__eq__ is not object.__eq__ or not kind.__weakrefoffset__:
        return kind, value
    own = getattr(value, "__dict__", {})
    return weakref.ref(value), *[key_of(own[name]) if isinstance(own.get(name), READ) else None for name in names]


def _may_change(name):
    return Refused(f"it reads the variable {name}, which may change")


def _module_of(function):
    """Returns the name of the module whose variables are a function's globals; None if there is no such module."""
    name = function.__globals__.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    return name if isinstance(module, types.ModuleType) and vars(module) is function.__globals__ else None


def _names(function, *operations):
    """Returns the operands of such operations in a function's code, and in the code of the functions inside it."""
    waiting, found = [function.__code__], set()
    while waiting:
        code = waiting.pop()
        waiting += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        found |= {each.argval for each in dis.get_instructions(code) if each.opname in operations}
    return found


def _variables(function):
    """Returns (name, value, is_global) for the global and captured variables that a Python function reads."""
    names = _names(function, "LOAD_GLOBAL", "LOAD_NAME") & function.__globals__.keys()
    yield from ((name, function.__globals__[name], True) for name in sorted(names))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield name, cell.cell_contents, False
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
