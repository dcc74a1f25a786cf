# SPDX-License-Identifier: Apache-2.0
"""Tries modules: whether a module is a norm, and whether it still is one for inputs of a new shape and type."""
import dataclasses
import itertools

import torch

from normjit.torch import gated, probes, sources
from normjit.torch.probes import Norm, Raised, Refused

OFFSETS = (0.0, 1.0)  # values that a norm may add to its weights; each is tried
SCALES = (1e-3, 30.0, 1e4, 1e12)  # sizes of inputs and weights that are tried in addition to 1
SHAPES = ((2, 3), (5,), (), (2, 3, 4), (1, 7))  # shapes of x without its last dimension
MOST_ROWS, MOST_ELEMENTS = 4096, 1 << 16  # the most rows and elements of one trial
OTHER_EPS = 0.011  # an eps that is used to find out where eps is read
LEAST_EPS, MOST_EPS = 1e-20, 0.1  # the smallest and largest eps that a norm may have in its code
TINY = 1e-12  # a size of inputs whose squares are small against eps
TOLERANCE = 2e-5  # relative to the largest element, for results computed in f32
LARGE_TOLERANCE = 1e-3  # the same for sums over many rows
ROUNDED_TOLERANCE = 0.08  # the same for results computed in bf16 or f16
SUM_TOLERANCE = 0.9  # the same for their sums over many rows, which torch computes in bf16 on a CPU (bf16_gradients.py)
ROUNDED = (torch.bfloat16, torch.float16)
MOST_CHECKED = 4096  # the most shapes that are remembered
UNKNOWN = object()


def epsilons(module):
    """Returns the attributes that may be a module's eps."""
    found = {k: v for k, v in vars(module).items() if isinstance(v, float) and 0 <= v < MOST_EPS}
    if vars(module).get("eps", 0) is None:
        found["eps"] = None
    return found


def why_no_eps(module):
    """Returns why a module without epsilons() has none."""
    for name, value in vars(module).items():
        if "eps" in name and type(value) in (int, float):
            return f"its {name} is {value!r}; known: a float that is at least 0 and below {MOST_EPS}"
    return "it has no eps"


class _Probe:
    """Makes twins of one module with random parameters, and random inputs: x, and with `has_gate` a gate."""

    def __init__(self, module, kind, names, has_gate, device="cpu"):
        self.module, self.kind, self.names, self.has_gate, self.device = module, kind, names, has_gate, device
        self.generator = torch.Generator(device).manual_seed(0)
        self.cols = getattr(module, names[0]).numel()
        self.twins = []

    def twin(self, dtypes, training=True, scale=1.0):
        """Returns a twin. `dtypes` is one type, or the types of the parameters as twin_of() takes them; `scale` is the
        size of the parameters."""
        if isinstance(dtypes, torch.dtype):
            dtypes = _all_of(dtypes, probes.types_of(self.module, self.names))
        self.twins.append(probes.twin_of(self.module, self.kind, dtypes, (self.cols,), self.device, self.generator))
        probes.attributes_of(self.twins[-1])["training"] = training
        for parameter in probes.parameters_of(self.twins[-1]).values():
            if parameter is not None:
                parameter.data.mul_(scale)
        return self.twins[-1]

    def parameters(self, twin):
        """Returns a twin's weight and bias; None for a bias that does not exist."""
        return [probes.parameters_of(twin).get(name) for name in self.names]

    def random(self, *shape):
        return torch.randn(shape, generator=self.generator, device=self.device, dtype=torch.float32)

    def inputs(self, *shape, dtypes=(torch.float32,), scales=(1.0, 1.0), needs=(True, True)):
        """Returns random inputs: x, then the gate. `dtypes`, `scales` and `needs` have an entry for each; if there are
        fewer types, the last one counts. The means of x are not zero."""
        made = [(self.random(*shape) + shift) * scale for shift, scale in zip((0.5, 0.0)[: 1 + self.has_gate], scales)]
        return [t.to(dtypes[min(i, len(dtypes) - 1)]).requires_grad_(needs[i]) for i, t in enumerate(made)]

    def compare(self, twin, inputs, norm, tolerance=TOLERANCE, sum_tolerance=TOLERANCE):
        """Compares one forward and backward pass with the definition. Raises Refused."""
        weight, bias = self.parameters(twin)
        kept = [None if t is None else t.detach().clone() for t in (*inputs, weight, bias)]
        dy = self.random(*inputs[0].shape).to(inputs[0].dtype)
        got = probes.gradients(twin, inputs, dy, weight, bias)
        if not all(t is None or torch.equal(t, old) for t, old in zip((*inputs, weight, bias), kept)):
            raise Refused("it writes to its input or its parameters")
        probes.compare(got, inputs, dy, weight, bias, norm, tolerance, sum_tolerance)
        return got[0]

    def refusal(self):
        """Returns why a twin was refused while it ran, because its code may have caught the exception."""
        return next(filter(None, (probes.attributes_of(twin).get("_normjit_refused") for twin in self.twins)), None)


def recognise(module, kind, names, has_gate=False):
    """Returns the Norm, of x alone or with a gate, that a module of the class `kind` computes with a weight and a bias
    of these names. Raises Refused."""
    probe, state = _Probe(module, kind, names, has_gate), torch.get_rng_state()
    try:
        norm, shape = _match(probe)
        wrong = probes.lacks_bias(norm, probes.types_of(module, names).get(names[1]))
        if wrong is not None:
            raise Refused(wrong)
        ranks = _try_shapes(probe, norm)
        _try_values(probe, norm, shape)
        _try_ways_to_call(probe, norm, shape)
        reason = None
    except Refused as refused:
        reason = str(refused)
    finally:
        draws = not torch.equal(torch.get_rng_state(), state)
        if draws:
            torch.set_rng_state(state)
    reason = probe.refusal() or ("it draws random numbers" if draws else reason)
    if reason is not None:
        raise Refused(reason)
    read = {name: value for twin in probe.twins for name, value in probes.read_by(twin).items()}
    read.pop(norm.eps_name, None)
    functions = {name: value for name, value in read.items() if isinstance(value, probes.FUNCTIONS)}
    inherited = [vars(base)["forward"] for base in kind.__mro__ if "forward" in vars(base)]
    variables = sources.variables_read([*functions.values(), *inherited])
    return dataclasses.replace(norm, ranks=frozenset(ranks), functions=tuple(functions.items()), variables=variables,
                               constants=tuple((k, v) for k, v in read.items() if k not in functions))


def _match(probe):
    """Returns the Norm that fits the outputs for two inputs, and their shape. Raises Refused."""
    twin = probe.twin(torch.float32)
    shape = _first_taken(probe, twin)
    named = list(epsilons(probe.module).items())
    fits = _that_fit(probe, twin, shape, named)
    norm = next((each for each in fits if _follows_its_eps(probe, twin, shape, each)), None)
    if norm is not None:
        return norm, shape
    if probe.has_gate:
        raise Refused(f"reads its eps from none of its attributes {', '.join(dict(named))} at each call" if fits
                      else probes.unknown(has_gate=True))
    measured = [(None, eps) for eps in _measured(probe, shape)]
    fits = _that_fit(probe, twin, shape, measured)
    if fits:
        return fits[0], shape
    raise Refused(probes.unknown(has_gate=False) if named or measured else why_no_eps(probe.module))


def _measured(probe, shape):
    """Returns numbers that a module's code may add to the mean square of a row, or to its variance."""
    twin, found = probe.twin(torch.float32), set()
    weight, bias = probe.parameters(twin)
    weight.data.fill_(1)
    if bias is not None:
        bias.data.zero_()
    (x,) = probe.inputs(*shape, probe.cols, scales=(TINY,))
    x, y = (t.detach().double() for t in (x, probes.output(twin, x)))
    for rows, offset in itertools.product((x, x - x.mean(-1, keepdim=True)), OFFSETS):
        squares = float((rows * rows).sum())
        rstd = float((rows * y).sum()) / squares / (1 + offset) if squares > 0 else 0.0
        eps = rstd**-2 - squares / rows.numel() if rstd > 0 else 0.0
        if LEAST_EPS < eps < MOST_EPS:
            found.add(_plain_number(eps))
    return found


def _plain_number(eps):
    """Returns the number that was probably meant; None for the eps of the type."""
    alike = lambda number: abs(number / eps - 1) < TOLERANCE  # noqa: E731
    short = float(f"{eps:.3g}")
    return None if alike(torch.finfo(torch.float32).eps) else short if alike(short) else eps


def _follows_its_eps(probe, twin, shape, norm):
    """True if a twin still computes a Norm after the attribute that holds its eps, and no other, has changed."""
    probes.attributes_of(twin)[norm.eps_name] = OTHER_EPS
    try:
        others = _that_fit(probe, twin, shape, [(norm.eps_name, OTHER_EPS)])
        return dataclasses.replace(norm, eps=OTHER_EPS) in others
    finally:
        probes.attributes_of(twin)[norm.eps_name] = norm.eps


def _first_taken(probe, twin):
    """Returns the first shape of rows that a module accepts. Raises Refused."""
    errors = []
    for rows in SHAPES:
        try:
            probes.output(twin, *probe.inputs(*rows, probe.cols))
            return rows
        except Raised as error:
            errors.append(str(error))
    raise Refused(f"takes no [.., N] {'with a gate' if probe.has_gate else 'alone'}: {errors[0]}")


def _that_fit(probe, twin, shape, named):
    """Returns the Norms that fit a twin's outputs, each with one of the pairs of an attribute and the eps in it."""
    weight, bias = probe.parameters(twin)
    kinds = gated.NAMES if probe.has_gate else ("rmsnorm", "layernorm")
    groups = _groups(probe) if probe.has_gate else [1]
    fits = [Norm(norm, name, eps, offset, groups=count, names=probe.names)
            for norm, count, offset, (name, eps) in itertools.product(kinds, groups, OFFSETS, named)]
    for scale in (1.0, SCALES[0]):
        inputs = probe.inputs(*shape, probe.cols, scales=(scale, 1.0))
        y, *rows = (t.detach().reshape(-1, probe.cols) for t in (probes.output(twin, *inputs), *inputs))
        with torch.no_grad():
            fits = [each for each in fits
                    if probes.off(y, probes.definition(each, rows, rows[0], weight, bias)[0]) <= TOLERANCE]
    return fits


def _groups(probe):
    """Returns the numbers of groups of columns that the attributes of a module may mean."""
    numbers = {v for v in vars(probe.module).values() if type(v) is int and 0 < v <= probe.cols and probe.cols % v == 0}
    return sorted({1, *numbers, *(probe.cols // v for v in numbers)} - {probe.cols} | {1})


def _try_shapes(probe, norm):
    """Returns the numbers of dimensions that a module accepts. normjit must be able to serve all of them. Raises
    Refused."""
    cols, ranks = probe.cols, set()
    many = (1, max(9, min(MOST_ROWS, MOST_ELEMENTS // cols)))
    square = [(cols,), (2, cols), (1, cols, 2)] if 2 * cols * cols <= MOST_ELEMENTS else []  # shapes with two or three
                                                                                             # equal dimensions
    twin = probe.twin(torch.float32)
    for rows in (*SHAPES, many, *square):
        try:
            probe.compare(twin, probe.inputs(*rows, cols), norm)
            ranks.add(len(rows) + 1)
        except Raised:  # the norm raises for inputs of that shape
            continue
        except Refused as refused:
            raise Refused(f"{refused}, for an input of {[*rows, cols]}") from None
    return ranks


def _try_values(probe, norm, shape):
    """Tries small and large inputs and weights, in each type. Raises Refused."""
    made = lambda dtype, *scales: probe.inputs(*shape, probe.cols, dtypes=(dtype,), scales=scales)  # noqa: E731
    for dtype, scale in itertools.product((torch.float32, torch.float64), (1.0, *SCALES)):
        try:
            probe.compare(probe.twin(dtype), made(dtype, scale, 1.0), norm)
            probe.compare(probe.twin(dtype, scale=scale), made(dtype, 1.0, 1.0), norm)
            if probe.has_gate:
                probe.compare(probe.twin(dtype), made(dtype, 1.0, scale), norm)
        except Refused as refused:
            raise Refused(f"{refused}, for an input of {str(dtype)[6:]} around {scale:g}") from None
    for dtype in ROUNDED:
        try:
            probe.compare(probe.twin(dtype), made(dtype, 1.0, 1.0), norm, ROUNDED_TOLERANCE, ROUNDED_TOLERANCE)
        except Raised:  # the norm raises for inputs of that type
            continue
        except Refused as refused:
            raise Refused(f"{refused}, for an input of {str(dtype)[6:]}") from None


def _try_ways_to_call(probe, norm, shape):
    """Tries a norm in inference mode, without gradients, several times, and on tensors with gaps. Raises Refused if the
    results differ."""
    inputs = probe.inputs(*shape, probe.cols, needs=(False, False))
    leaves = lambda *needs: [t.clone().requires_grad_(need) for t, need in zip(inputs, needs)]  # noqa: E731
    for training in (False, True):
        twin = probe.twin(torch.float32, training)
        for _ in range(3):
            y = probe.compare(twin, leaves(True, True), norm)
        for needs in ((False, False), (True, False), (False, True)):
            if not torch.equal(y, probe.compare(twin, leaves(*needs), norm)):
                raise Refused("its output depends on whether its input requires a gradient")
        with torch.no_grad():
            if not torch.equal(y, probes.output(twin, *leaves(True, True))):
                raise Refused("its output depends on whether gradients are enabled")
        strided = [t.detach()[..., ::2].requires_grad_() for t in probe.inputs(*shape, 2 * probe.cols)]
        probe.compare(twin, strided, norm)


def check(module, kind, norm, inputs, key):
    """Returns why the module does not compute its norm for inputs with the shapes and types of these, or None if it
    does. Keeps the result in norm.checked under the key, unless memory was missing. Does not use the values of the
    inputs."""
    if len(norm.checked) >= MOST_CHECKED:
        norm.checked.clear()
    now = dataclasses.replace(norm, eps=norm.eps_in(module))
    try:
        reason = norm.checked[key] = probes.alone(_why_not, module, kind, now, inputs)
    except probes.NO_MEMORY as error:
        return f"there was no memory to try it, for an input of {list(inputs[0].shape)}: {error}"
    return reason


def _why_not(module, kind, norm, inputs):
    x = inputs[0]
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    own, given = probes.types_of(module, norm.names), [t.dtype for t in inputs]
    probe = _Probe(module, kind, norm.names, len(inputs) > 1, x.device)
    trials = [((wide,), _all_of(wide, own), LARGE_TOLERANCE, LARGE_TOLERANCE)]
    if {*given, *own.values()} - {None} != {wide}:
        trials.append((given, own, ROUNDED_TOLERANCE, SUM_TOLERANCE))
    try:
        for dtypes, of_parameters, *tolerances in trials:
            tried = probe.inputs(*x.shape, dtypes=dtypes, needs=[t.requires_grad for t in inputs])
            probe.compare(probe.twin(of_parameters, module.training), tried, norm, *tolerances)
        watched = {norm.eps_name, *(name for name, _ in (*norm.constants, *norm.functions))}
        others = [name for twin in probe.twins for name, value in probes.read_by(twin).items()
                  if name not in watched and not (isinstance(value, probes.FUNCTIONS) and not norm.functions)]
        reason = probe.refusal() or (f"it reads its attribute {others[0]} for some inputs alone" if others else None)
    except Refused as refused:
        reason = probe.refusal() or str(refused)
    return reason and f"{reason}, for an input of {list(x.shape)} of {str(x.dtype)[6:]}"


def _all_of(dtype, types):
    return {name: None if each is None else dtype for name, each in types.items()}
