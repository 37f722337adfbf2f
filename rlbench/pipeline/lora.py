"""Low-rank adapters (Hu et al. 2021, arXiv:2106.09685) for the linear layers of any module."""

import math

import torch
from torch import nn
from torch.nn import functional


class LoRALinear(nn.Module):
    """``base`` (nn.Linear, out x in) plus a learned update of rank ``rank``: ``base(x) + scale * x A^T B^T``.

    A is rank x in, B is out x rank and starts at zero, so that at initialisation the layer equals its base.
    ``scale`` is ``alpha / rank`` (alpha None: the rank, so 1). It adds rank * (in + out) parameters. B is the layer's
    first parameter: it is the one that every step of training changes, A has no gradient as long as B is zero.

    Raises ValueError when the rank is not in 1..min(in, out).

    >>> layer = LoRALinear(nn.Linear(512, 512, bias=False), rank=4)
    >>> sum(p.numel() for p in adapter_parameters(layer))
    4096
    """

    def __init__(self, base, rank, alpha=None):
        super().__init__()
        if not 1 <= rank <= min(base.in_features, base.out_features):
            raise ValueError(
                "rank %s does not fit a layer of %d x %d: use 1..%d"
                % (rank, base.out_features, base.in_features, min(base.in_features, base.out_features))
            )
        self.base, self.rank = base, rank
        self.scale = (rank if alpha is None else alpha) / rank
        like = {"dtype": base.weight.dtype, "device": base.weight.device}
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank, **like))
        self.lora_a = nn.Parameter(torch.empty(rank, base.in_features, **like))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    def forward(self, x):
        """Map ``x`` (..., in) to (..., out)."""
        update = functional.linear(functional.linear(x, self.lora_a), self.lora_b)
        # Not called as a module: whoever hooks modules would take it for a network of its own, fed with the same.
        return functional.linear(x, self.base.weight, self.base.bias) + self.scale * update

    def merged(self):
        """Return an nn.Linear of its own memory with the update folded into the weight."""
        with torch.no_grad():
            layer = nn.Linear(self.base.in_features, self.base.out_features, bias=self.base.bias is not None)
            layer.to(self.base.weight)
            layer.weight.copy_(self.base.weight + self.scale * self.lora_b @ self.lora_a)
            if self.base.bias is not None:
                layer.bias.copy_(self.base.bias)
        return layer


def apply_lora(module, ranks, alpha=None):
    """Replace every nn.Linear inside ``module`` by a LoRALinear over it, in place, and return ``module``.

    ``ranks``: one integer for all layers, or one for each in the order of ``module.named_modules()``, the last for
    all that follow (``[8, 8, 8, 4]``: 8 for the first three, 4 for the rest). A rank that a layer is too small for
    (a head of 2 actions) becomes the largest that fits. Raises ValueError when there is no linear layer.

    >>> net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
    >>> x = torch.ones(1, 4)
    >>> before = net(x)
    >>> bool((apply_lora(net, [8, 4])(x) == before).all())
    True
    >>> [m.rank for m in net if isinstance(m, LoRALinear)]
    [4, 2]
    """
    ranks = [ranks] if isinstance(ranks, int) else list(ranks)
    inside_lora = {id(m.base) for m in module.modules() if isinstance(m, LoRALinear)}
    places = [
        (parent, name, child)
        for parent in module.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Linear) and id(child) not in inside_lora
    ]
    if not places or not ranks:
        raise ValueError("there is no linear layer to give an adapter to" if ranks else "ranks is empty")
    for number, (parent, name, child) in enumerate(places):
        rank = min(ranks[min(number, len(ranks) - 1)], child.in_features, child.out_features)
        setattr(parent, name, LoRALinear(child, rank, alpha))
    return module


def adapter_parameters(module):
    """Return the adapters' parameters (B and A of every LoRALinear), in order."""
    layers = [m for m in module.modules() if isinstance(m, LoRALinear)]
    return [p for layer in layers for p in (layer.lora_b, layer.lora_a)]


def base_parameters(module):
    """Return the parameters of the layers under the adapters."""
    layers = [m for m in module.modules() if isinstance(m, LoRALinear)]
    return [p for layer in layers for p in layer.base.parameters()]


def base_last(module):
    """Return all parameters, those of the layers under adapters last, and how many elements come before them.

    That many elements of a flat buffer in this order are all that learning changes, and all that has to be sent to
    actors, while the base is frozen: adapters, and what is under no adapter. All, where there is none.

    >>> net = apply_lora(nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2)), 2)
    >>> base_last(net)[1] == 2 * (4 + 64) + 2 * (64 + 2)
    True
    """
    base = base_parameters(module)
    inside = {id(p) for p in base}
    others = [p for p in module.parameters() if id(p) not in inside]
    return others + base, sum(p.numel() for p in others)


def freeze_base(module):
    """Exclude the layers under the adapters from learning, until ``thaw_base``."""
    for p in base_parameters(module):
        p.requires_grad_(False)
        p.grad = None


def thaw_base(module):
    """Let the layers under the adapters learn again."""
    for p in base_parameters(module):
        p.requires_grad_(True)
