"""Weight synchronisation: one flat buffer, and the ways it travels.

Between processes of one machine ``WeightPublisher`` and ``WeightReader`` share it in memory; between the ranks of a
``torch.distributed`` group (gloo or NCCL) it is broadcast, averaged or served. Every rank must call the same function.
"""

import numpy as np
import torch
import torch.distributed as dist

from rlbench.pipeline.shared import LINE, SharedBlock, counter, padded


class FlatBuffer:
    """The parameters (an iterable of tensors of one dtype and device) as one 1-D tensor ``flat``, in their order.

    ``attach``: the parameters' memory is moved into ``flat`` and that of their gradients into ``gradient``: packing
    and unpacking then cost nothing, and one operation zeroes, clips or sends them all. A gradient stays attached as
    long as it is zeroed by ``zero_gradient`` and never set to None. Without ``attach``, ``gradient`` is None and
    ``pack`` and ``unpack`` copy. Raises ValueError when there is no parameter, or when their dtypes differ.

    >>> net = torch.nn.Linear(2, 1)
    >>> buffer = FlatBuffer(net.parameters())
    >>> _ = buffer.flat.copy_(torch.tensor([1.0, 2.0, 3.0]))
    >>> net.weight.tolist(), net.bias.tolist()
    ([[1.0, 2.0]], [3.0])
    """

    def __init__(self, parameters, attach=True):
        self.parameters = list(parameters)
        if len({(p.dtype, p.device) for p in self.parameters}) != 1:
            raise ValueError("a flat buffer needs parameters, all of one dtype on one device")
        self.flat = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        self.gradient = torch.zeros_like(self.flat) if attach else None
        if attach:
            for p, value, gradient in zip(self.parameters, self._views(self.flat), self._views(self.gradient)):
                p.data = value
                p.grad = gradient

    def _views(self, flat):
        parts = flat.split([p.numel() for p in self.parameters])
        return [part.view(p.shape) for part, p in zip(parts, self.parameters)]

    @property
    def attached(self):
        """Whether the parameters live in ``flat``."""
        return self.gradient is not None

    def pack(self):
        """Bring ``flat`` up to date with the parameters and return it."""
        if not self.attached:
            with torch.no_grad():
                torch.cat([p.reshape(-1) for p in self.parameters], out=self.flat)
        return self.flat

    def unpack(self, flat=None):
        """Set the parameters to ``flat`` (1-D; None: what the buffer holds)."""
        if flat is not None and flat is not self.flat:
            self.flat.copy_(flat)
        if not self.attached:
            with torch.no_grad():
                for p, value in zip(self.parameters, self._views(self.flat)):
                    p.copy_(value)

    def zero_gradient(self):
        """Zero all gradients in one operation, keeping them attached."""
        self.gradient.zero_()


class WeightPublisher:
    """Publishes flat float32 weights to readers in other processes; hand it to them by fork or pickled (spawn).

    A sequence lock over two halves: version k + 1 is written beside version k and then announced, so a reader is
    only disturbed when two versions are published while it copies; it sees that by the sequence number and reads
    again. The writer never waits. One process may publish.

    Where only the first elements of the weights change, a prefix of them will do: readers keep the rest. A reader may
    miss any version, so the rest must be what all of them began with; once it was published again, it always must be.

    >>> publisher = WeightPublisher(elements=3)
    >>> publisher.publish(torch.tensor([1.0, 2.0, 3.0]), version=7)
    >>> out = torch.empty(3)
    >>> WeightReader(publisher).read(out), out.tolist()
    (7, [1.0, 2.0, 3.0])
    """

    def __init__(self, elements):
        self.elements = elements
        self._block = SharedBlock(2 * LINE + 2 * padded(4 * elements))
        self._open()

    def _open(self):
        self.sequence = counter(self._block, 0)
        self.versions = counter(self._block, LINE), counter(self._block, LINE + 8)
        self.sizes = counter(self._block, LINE + 16), counter(self._block, LINE + 24)
        starts = 2 * LINE, 2 * LINE + padded(4 * self.elements)
        self.halves = [np.frombuffer(self._block.memory, np.float32, self.elements, start) for start in starts]

    def __getstate__(self):
        return {"elements": self.elements, "_block": self._block}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._open()

    @property
    def version(self):
        """The newest published version; 0 before the first."""
        return self.versions[self.sequence[0] & 1][0]

    def publish(self, flat, version):
        """Make ``flat`` (1-D float32 tensor, at most ``elements``) the newest weights, known as ``version``."""
        sequence, size = self.sequence[0] + 1, flat.numel()
        np.copyto(self.halves[sequence & 1][:size], flat.detach().cpu().numpy())
        self.sizes[sequence & 1][0] = size
        self.versions[sequence & 1][0] = version
        self.sequence[0] = sequence


class WeightReader:
    """A reader of what a WeightPublisher publishes."""

    def __init__(self, publisher):
        self._publisher = publisher
        self._sequence = publisher.sequence
        self._seen = 0

    def changed(self):
        """Return whether there is something newer than what ``read`` returned last; costs one load."""
        return self._sequence[0] != self._seen

    def read(self, out):
        """Copy the newest weights into ``out`` (1-D float32 CPU tensor, all elements) and return their version.

        Raises LookupError when nothing was published yet.
        """
        target = out.detach().numpy()
        while True:
            sequence = self._sequence[0]
            if not sequence:
                raise LookupError("no weights were published yet")
            size = self._publisher.sizes[sequence & 1][0]
            if self._sequence[0] != sequence:
                # It may be the size of what comes after the next, and nothing beyond the next may be touched.
                continue
            np.copyto(target[:size], self._publisher.halves[sequence & 1][:size])
            version = self._publisher.versions[sequence & 1][0]
            if self._sequence[0] == sequence:
                self._seen = sequence
                return version


def broadcast_packed(buffer, source=0, group=None, elements=None):
    """Send ``source``'s weights, or their first ``elements``, to every rank in one broadcast of the flat buffer."""
    dist.broadcast(buffer.pack()[:elements], source, group)
    buffer.unpack()


def broadcast_each(parameters, source=0, group=None):
    """Send ``source``'s weights to every rank in one broadcast per parameter: what packing is compared with."""
    for p in parameters:
        dist.broadcast(p.data, source, group)


def all_reduce_average(buffer, group=None):
    """Replace every rank's weights by their mean over the ranks.

    A ring all-reduce moves 2 (n - 1) / n of the buffer per rank, a broadcast 1.
    """
    flat = buffer.pack()
    dist.all_reduce(flat, group=group)
    flat /= dist.get_world_size(group)
    buffer.unpack()


def all_reduce_gradients(gradient, update, every=1, group=None):
    """Average the flat ``gradient`` over the ranks in updates ``every - 1``, ``2 every - 1``, ...; else leave it.

    Returns whether it did. With ``every`` 1 the ranks stay equal; above that they drift apart in between, until
    weights are broadcast.
    """
    if (update + 1) % every:
        return False
    dist.all_reduce(gradient, group=group)
    gradient /= dist.get_world_size(group)
    return True


def serve_parameters(flat, apply, requests, group=None):
    """As the parameter server: answer ``requests`` calls of ``exchange``, in the order in which they arrive.

    ``apply(gradient)`` must update ``flat`` in place; the worker that sent the gradient gets ``flat`` back.
    """
    gradient = torch.empty_like(flat)
    for _ in range(requests):
        worker = dist.recv(gradient, group=group)
        apply(gradient)
        dist.send(flat, worker, group=group)


def exchange(gradient, flat, server=0, group=None):
    """As a worker: send ``gradient`` to the parameter server and receive the new weights into ``flat``."""
    dist.send(gradient, server, group=group)
    dist.recv(flat, server, group=group)
