"""The universal PyTorch tap: sees acting, learning and updating with no code of the library.

A global forward pre-hook finds the modules that own parameters and are fed with observations (or observations and
actions, as Q networks are); some optimizer steps later it is replaced by a ``forward`` of ours on just those, since
hooks make a module call take PyTorch's slow path. A global optimizer hook sees every step.

A library may copy or pickle a network that is tapped: the copy is tapped too.
"""

import functools

import numpy as np
import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from rlbench.probe.ledger import GRADIENT, UNTOLD
from rlbench.probe.taps import SHORT, sample_indices

# Global hooks stay for this many optimizer steps, so that modules first fed after the first update are found too.
DISCOVERY_STEPS = 64
# A critic that is also asked for a bootstrap value sees a few more passes than its actor.
SAME = 1.1
# A module that acts sees many more passes than optimizer steps; one that only learns, one or two for each.
ACTS = 4

_FLOAT, _NUMPY_FLOAT, _grad_enabled = torch.float32, np.dtype(np.float32), torch.is_grad_enabled
_tap = None


def install(taps, action_dim, alone=False):
    """Start tapping in this process; ``action_dim`` is 0 where actions are discrete.

    ``alone``: no other process acts or learns.
    """
    global _tap
    _tap = _Tap(taps, action_dim, alone)
    _tap.discovery = register_module_forward_pre_hook(_module_called)
    register_optimizer_step_post_hook(_optimizer_stepped)


class _Tap:
    """What the hooks know: the fed modules and the optimizers, by ``id``, each held so that the id stays its own."""

    def __init__(self, taps, action_dim, alone):
        self.taps, self.widths, self.alone = taps, (taps.dim, taps.dim + action_dim), alone
        self.fed, self.rejected, self.optimizers = {}, {}, {}
        self.discovery, self.steps = None, 0


class _Fed:
    """A module that is fed with observations: its index, and a cheap way to read its fingerprint."""

    def __init__(self, index, module, parameter, width):
        self.index, self.module, self.parameter, self.width = index, module, parameter, width
        self.passes = 0
        self.untold = False
        self._address = None

    def weights(self):
        """Return the fingerprint of the module's first parameter, 16 bytes."""
        if self.untold:
            return UNTOLD
        parameter = self.parameter
        if parameter.device.type != "cpu":
            flat = parameter.detach().reshape(-1)[sample_indices(parameter.numel())]
            return flat.float().cpu().numpy().tobytes().ljust(16, b"\0")
        if parameter.data_ptr() != self._address:
            # A numpy view: reading it again costs no tensor operation, whatever the parameter's memory layout is.
            self._address, self._flat = parameter.data_ptr(), parameter.detach().numpy().flat
            self._sampled = sample_indices(parameter.numel())
        return self._flat[self._sampled].tobytes().ljust(16, b"\0")


def _module_called(module, args):
    """Forward pre-hook: note a batch of observations."""
    tap = _tap
    if tap is None or tap.taps.paused or not args:
        return
    x = args[0]
    if not isinstance(x, torch.Tensor):
        return
    shape = x.shape
    if not shape or shape[-1] not in tap.widths:
        return
    fed = tap.fed.get(id(module)) or _admit(tap, module, shape[-1])
    if fed is None:
        return
    fed.passes += 1
    if x.requires_grad or x.dtype is not _FLOAT or not x.is_cpu:
        x = x.detach()[..., : tap.taps.dim].float().cpu()
    tap.taps.fed(x.numpy(), fed.index, GRADIENT if _grad_enabled() else 0, fed.weights())


def _admit(tap, module, width):
    """Return the record of a module first fed now, or None when it is not one that reads the observation.

    A module with weights of its own reads it; so does a scripted module, whose inner modules no hook sees.
    """
    if id(module) in tap.rejected:
        return None
    own = list(module.parameters(recurse=isinstance(module, torch.jit.ScriptModule)))
    if not own:
        tap.rejected[id(module)] = module
        return None
    tap.fed[id(module)] = fed = _Fed(len(tap.taps.modules), module, own[0], width)
    tap.taps.modules.append({"type": type(module).__name__, "optimizer": None, "device": str(own[0].device)})
    tap.taps.describe()
    if tap.discovery is None:
        _hook(module)
    return fed


def _hook(module):
    """Have one module tell of its calls, unless it is a copy of one that does."""
    kind = type(module)
    if issubclass(kind, _Tapped) or _module_called in module._forward_pre_hooks.values():
        return
    if isinstance(module, torch.jit.ScriptModule):
        # A scripted module refuses to register a hook, but calls one that is there.
        module._forward_pre_hooks[id(_module_called)] = _module_called
    elif "forward" in vars(module) or kind.__reduce_ex__ is not object.__reduce_ex__:
        module.register_forward_pre_hook(_module_called)
    else:
        module.__class__ = _tapped(kind)


class _Tapped:
    """Marks the classes that ``_tapped`` makes."""


@functools.lru_cache(maxsize=None)
def _tapped(kind):
    """Return a subclass of the module class ``kind`` that notes what its ``forward`` is fed, and is else the same."""

    def forward(self, *args, **named):
        tap = _tap
        if tap is not None and not tap.taps.paused:
            fed = tap.fed.get(id(self))
            if fed is None or not _noted(tap.taps, fed, args):
                _module_called(self, args)
        return kind.forward(self, *args, **named)

    def reduce(self, protocol):
        _, _, state, *_ = object.__reduce_ex__(self, protocol)
        return _blank, (kind,), state

    own = {"forward": forward, "__reduce_ex__": reduce, "__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind, _Tapped), own)


def _blank(kind):
    """Return a tapped module of class ``kind`` for a copy, or an unpickled one, to be filled with its state."""
    return object.__new__(_tapped(kind))


def _noted(taps, fed, args):
    """Note a pass in the fewest operations and return True; False where it takes more than that.

    It runs in caches that hold the library's code and data, so each operation costs several times what it does alone.
    """
    try:
        array = args[0].numpy()
        if array.dtype is not _NUMPY_FLOAT or array.shape[-1] != fed.width or fed.width * 4 > SHORT:
            return False
        taps.noted(array, fed.width * 4, fed.index, GRADIENT if _grad_enabled() else 0, fed.weights())
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return False
    return True


def _optimizer_stepped(optimizer, args, kwargs):
    """Optimizer post hook: note the new weights of every fed module that the optimizer owns."""
    tap = _tap
    if tap is None or tap.taps.paused:
        return
    known = tap.optimizers.get(id(optimizer))
    if known is None or known[3] != len(tap.fed):
        known = _know(tap, optimizer)
    index, _, owned, _ = known
    rate = float(optimizer.param_groups[0].get("lr", float("nan")))
    for fed in owned:
        tap.taps.stepped(index, fed.index, rate, fed.weights())
    tap.steps += 1
    if tap.steps == DISCOVERY_STEPS:
        _narrow(tap)


def _narrow(tap):
    """Replace the global hook by hooks on the fed modules, less those that tell nothing new.

    Actor and critic of one optimizer see the same batches at the same versions: of two such modules that saw about as
    many passes, the first one fed tells it all. Only where the modules that learn also act, though: an actor with a
    copy of the policy is told by its weights, and it may be any of the learner's modules that it copies.
    """
    tap.discovery.remove()
    tap.discovery = None
    owners = [tap.taps.modules[fed.index]["optimizer"] for fed in tap.fed.values()]
    acting = {o for o, fed in zip(owners, tap.fed.values()) if fed.passes > ACTS * DISCOVERY_STEPS}
    kept = {}
    for optimizer, (key, fed) in zip(owners, list(tap.fed.items())):
        twins = kept.setdefault(optimizer, [])
        alone = None in owners or optimizer not in acting
        if not alone and any(fed.passes <= SAME * other.passes for other in twins):
            tap.rejected[key] = tap.fed.pop(key).module
            continue
        twins.append(fed)
        _hook(fed.module)
        # One process, every network that reads observations is trained: there are no copies to be told apart, and
        # reading weights, in caches that an optimizer step has just emptied, is the dearest part of a hook.
        fed.untold = tap.alone and None not in owners


def _know(tap, optimizer):
    """Return ``(index, optimizer, owned fed modules, number of fed modules)`` and describe the optimizer."""
    parameters = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    owned = [fed for fed in tap.fed.values() if id(fed.parameter) in parameters]
    old = tap.optimizers.get(id(optimizer))
    index = old[0] if old else len(tap.taps.optimizers)
    description = {
        "type": type(optimizer).__name__,
        "parameters": sum(p.numel() for p in parameters.values()),
        "eps": optimizer.param_groups[0].get("eps"),
    }
    tap.taps.optimizers[index:] = [description, *tap.taps.optimizers[index + 1 :]]
    for fed in owned:
        tap.taps.modules[fed.index]["optimizer"] = index
    tap.optimizers[id(optimizer)] = known = (index, optimizer, owned, len(tap.fed))
    tap.taps.facts = {"framework": "torch " + torch.__version__, "compute_threads": torch.get_num_threads()}
    tap.taps.describe()
    return known
