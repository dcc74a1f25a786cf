# SPDX-License-Identifier: Apache-2.0
"""Modules that compute a norm for some inputs and something else for others, or that differ from a norm only in the
gradient."""
import torch
from torch_modules import InPython

WIDTH = 8
counter = 0
scale = {"of all": 1.0}
switch = True


def rms(x, weight, eps=1e-6):
    return weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps))


class ChannelsOfImages(torch.nn.LayerNorm):
    """Normalises the second of four dimensions."""

    def forward(self, x):
        if x.dim() == 4:
            return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return super().forward(x)


class LastButOne(InPython):
    """The same, for three dimensions whose last two have the same size."""

    def forward(self, x):
        square = x.dim() == 3 and x.shape[-1] == x.shape[-2]
        return super().forward(x.mT).mT if square else super().forward(x)


class Clamped(InPython):
    def forward(self, x):
        return super().forward(x.clamp(-10, 10))


class ClampedFarOut(InPython):
    def forward(self, x):
        return super().forward(x.clamp(-1e6, 1e6))


class ClampedWeight(InPython):
    def forward(self, x):
        return rms(x, self.weight.clamp(-4, 4), self.eps)


class DetachedStatistics(InPython):
    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps).detach())


class DetachedInput(InPython):
    def forward(self, x):
        return super().forward(x.detach())


class DetachedWeight(InPython):
    def forward(self, x):
        return rms(x, self.weight.detach(), self.eps)


class Scaler(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


class ScaledGradient(InPython):
    def forward(self, x):
        return Scaler.apply(super().forward(x))


class ScaledWeightGradient(InPython):
    def forward(self, x):
        return rms(x, Scaler.apply(self.weight), self.eps)


class HookedGradient(InPython):
    def forward(self, x):
        y = super().forward(x)
        if y.requires_grad:
            y.register_hook(lambda dy: 3 * dy)
        return y


class Dropout(InPython):
    def forward(self, x):
        return super().forward(torch.nn.functional.dropout(x, 0.5, self.training))


class NoiseThatCancels(InPython):
    def forward(self, x):
        return super().forward(x + 0 * torch.randn_like(x))


class InPlace(InPython):
    def forward(self, x):
        with torch.no_grad():
            x.mul_(2)
        return super().forward(x)


class WithBias(InPython):
    """An RMSNorm that adds a bias, if it has one."""

    def __init__(self, has_bias=True):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(WIDTH)) if has_bias else None

    def forward(self, x):
        y = super().forward(x)
        return y if self.bias is None else y + self.bias


class BiasLater(WithBias):
    def __init__(self):
        super().__init__(has_bias=False)


class InTuple(InPython):
    def forward(self, x):
        return super().forward(x), None


class IfRequiresGrad(InPython):
    def forward(self, x):
        return super().forward(x) * (1 if x.requires_grad else 2)


class IfGradEnabled(InPython):
    def forward(self, x):
        return super().forward(x) * (1 if torch.is_grad_enabled() else 2)


class IfHalf(InPython):
    def forward(self, x):
        return super().forward(x) * (2 if x.dtype == torch.bfloat16 else 1)


class IfDouble(InPython):
    def forward(self, x):
        return super().forward(x) * (2 if x.dtype == torch.float64 else 1)


class IfEvaluated(InPython):
    def forward(self, x):
        return super().forward(x) * (1 if self.training else 2)


class Counting(InPython):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (1 if self.calls < 100 else 2)


class CountingInBuffer(InPython):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class CountingGlobally(InPython):
    def forward(self, x):
        global counter
        counter += 1
        return super().forward(x) * (1 if counter < 10**6 else 2)


class InList(InPython):
    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen.append(len(self.seen))
        return super().forward(x)


class ByGlobalTable(InPython):
    def forward(self, x):
        return super().forward(x) * scale["of all"]


def by_switch(x):
    return x if switch else 2 * x


class ByGlobalSwitch(InPython):
    """The difference from a norm is in a function that the module calls."""

    def forward(self, x):
        return by_switch(super().forward(x))


class ByBuffer(InPython):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x):
        return super().forward(x) * self.scale


class ByTensor(InPython):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(())

    def forward(self, x):
        return super().forward(x) * self.scale


class Settings:
    scale = 1.0


class BySettings(InPython):
    def __init__(self):
        super().__init__()
        self.settings = Settings()

    def forward(self, x):
        return super().forward(x) * self.settings.scale


class BySettingsOfClass(InPython):
    def forward(self, x):
        return super().forward(x) * Settings.scale


class CaughtReading(BySettings):
    """It catches what the probe raises."""

    def forward(self, x):
        try:
            scale = self.settings.scale
        except Exception:
            scale = 1.0
        return rms(x, self.weight, self.eps) * scale


class ByDict(InPython):
    def forward(self, x):
        return super().forward(x) * self.__dict__.get("scale", 1.0)


class WholeMean(InPython):
    """Normalises over everything except the batch."""

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(list(range(1, x.dim())), keepdim=True) + self.eps))


REFUSED = {WithBias: "computes rmsnorm and adds a bias", ChannelsOfImages: "for an input of [1, 8, 2, 8]", LastButOne: "for an input of [2, 8, 8]",
           Clamped: "around 30", ClampedFarOut: "around 1e+12", ClampedWeight: "around 30",
           DetachedStatistics: "its gradient of x is another", DetachedInput: "gradient of x is another",
           DetachedWeight: "its gradient of weight is another", ScaledGradient: "its gradient of x is another",
           ScaledWeightGradient: "its gradient of weight is another", HookedGradient: "its gradient of x is another",
           Dropout: "draws random numbers", NoiseThatCancels: "draws random numbers",
           InPlace: "writes to its input", InTuple: "neither LayerNorm nor RMSNorm",
           IfRequiresGrad: "neither LayerNorm nor RMSNorm", IfGradEnabled: "whether gradients are enabled",
           IfHalf: "of bfloat16", IfDouble: "of float64", IfEvaluated: "neither LayerNorm nor RMSNorm",
           Counting: "sets its attribute calls", CountingInBuffer: "reads its buffer calls",
           CountingGlobally: "reads the variable counter", InList: "reads its attribute seen, a list",
           ByGlobalTable: "reads the variable scale",
           ByBuffer: "reads its buffer scale", ByTensor: "reads its attribute scale, a Tensor",
           BySettings: "reads its attribute settings, a Settings", BySettingsOfClass: "reads the variable Settings",
           CaughtReading: "reads its attribute settings", ByDict: "looks through its attributes",
           WholeMean: "neither LayerNorm nor RMSNorm"}


class BeyondLength(InPython):
    """Returns long sequences unchanged."""

    def forward(self, x):
        return x if x.dim() == 3 and x.shape[1] > 10000 else super().forward(x)


class ForOneBatch(InPython):
    def forward(self, x):
        return super().forward(x) * (2 if x.shape[0] == 77 else 1)


class ByAttributeForLong(InPython):
    def __init__(self):
        super().__init__()
        self.scale = 1.0

    def forward(self, x):
        y = super().forward(x)
        return y * self.scale if x.numel() > 10**5 else y


class ByAttribute(InPython):
    def __init__(self):
        super().__init__()
        self.scale = 1.0

    def forward(self, x):
        return super().forward(x) * self.scale


class ByClassAttribute(InPython):
    scale = 1.0

    def forward(self, x):
        return super().forward(x) * self.scale


class ByMethod(InPython):
    def after(self, y):
        return y

    def forward(self, x):
        return self.after(super().forward(x))


class ByProperty(InPython):
    _factor = 1.0

    @property
    def factor(self):
        return self._factor

    def forward(self, x):
        return super().forward(x) * self.factor


def _twice(module):
    module.scale = 2.0


def _twice_of_class(module):
    ByClassAttribute.scale = 2.0


def _twice_by_method(module):
    module.after = lambda y: 2 * y


def _twice_by_method_of_class(module):
    ByMethod.after = lambda self, y: 2 * y


def _twice_by_property(module):
    module._factor = 2.0


def _twice_by_switch(module):
    global switch
    switch = False


def _with_bias(module):
    module.bias = torch.nn.Parameter(torch.linspace(-1, 1, WIDTH))


def _nothing(module):
    pass


# (class, shape of x, what is done after patch(), why a call is then left to the module)
LEFT = {
    "long": (BeyondLength, (1, 10001, WIDTH), _nothing, "for an input of [1, 10001, 8]"),
    "batch": (ForOneBatch, (77, WIDTH), _nothing, "for an input of [77, 8]"),
    "attribute for some": (ByAttributeForLong, (20000, WIDTH), _nothing, "its attribute scale for some inputs alone"),
    "attribute": (ByAttribute, (5, WIDTH), _twice, "its attribute scale is not"),
    "class attribute": (ByClassAttribute, (5, WIDTH), _twice_of_class, "its attribute scale is not"),
    "method": (ByMethod, (5, WIDTH), _twice_by_method, "its attribute after is not"),
    "class's method": (ByMethod, (5, WIDTH), _twice_by_method_of_class, "its attribute after is not"),
    "bias": (BiasLater, (5, WIDTH), _with_bias, "computes rmsnorm and adds a bias"),
    "property": (ByProperty, (5, WIDTH), _twice_by_property, "its attribute"),
    "global variable": (ByGlobalSwitch, (5, WIDTH), _twice_by_switch, "the variable switch is not"),
}
