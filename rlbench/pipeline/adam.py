"""Adam over one flat buffer: one fused operation for all parameters."""

import torch
from torch.optim import Optimizer


class AdamFlat(Optimizer):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) over an attached FlatBuffer; equal to torch.optim.Adam.

    On a small network most of an optimizer step is the loop over its parameters; there is one here. It follows the
    buffer: parameters must keep ``requires_grad`` (frozen ones would still move by their moments), their gradients
    must stay attached. ``learning``: that many first elements learn, the rest stays until ``thaw`` (None: all learn).
    Raises ValueError for a buffer that is not attached.

    >>> from rlbench.pipeline.sync import FlatBuffer
    >>> net = torch.nn.Linear(2, 1)
    >>> buffer = FlatBuffer(net.parameters())
    >>> optimizer = AdamFlat(buffer, lr=0.1)
    >>> before = net.bias.item()
    >>> net(torch.ones(1, 2)).sum().backward()
    >>> optimizer.step()
    >>> round(before - net.bias.item(), 3)
    0.1
    """

    def __init__(self, buffer, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, learning=None):
        if not buffer.attached:
            raise ValueError("AdamFlat needs a FlatBuffer with attach=True")
        super().__init__(buffer.parameters, {"lr": lr, "betas": betas, "eps": eps})
        self._buffer, self._learning = buffer, 0
        self._flat, self._gradient, self._moments, self._steps = [], [], ([], []), []
        self._learn(buffer.flat.numel() if learning is None else learning)

    def _learn(self, end):
        """Have the elements up to ``end`` learn too, with moments and a count of steps of their own."""
        part = slice(self._learning, end)
        self._learning = end
        self._flat.append(self._buffer.flat[part])
        self._gradient.append(self._buffer.gradient[part])
        for moments in self._moments:
            moments.append(torch.zeros_like(self._flat[-1]))
        self._steps.append(torch.zeros((), dtype=torch.float32, device=self._buffer.flat.device))

    def thaw(self):
        """Have all elements learn from now on: those that did not are corrected for a bias of their own age."""
        if self._learning < self._buffer.flat.numel():
            self._learn(self._buffer.flat.numel())

    def add_param_group(self, param_group):
        """Take the buffer's parameters as the only group.

        The inherited method imports torch's compiler first: seconds in every process that makes an optimizer.
        """
        if self.param_groups:
            raise ValueError("AdamFlat has one group: the parameters of its buffer")
        self.param_groups.append({**self.defaults, "params": list(param_group["params"])})

    @torch.no_grad()
    def step(self, closure=None):
        """Take one step along the buffer's gradient; ``closure`` is called first, as torch's optimizers do."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        group = self.param_groups[0]
        first, second = group["betas"]
        for steps in self._steps:
            steps += 1
        torch._fused_adam_(
            self._flat,
            self._gradient,
            *self._moments,
            [],
            self._steps,
            lr=group["lr"],
            beta1=first,
            beta2=second,
            weight_decay=0.0,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )
        return loss
