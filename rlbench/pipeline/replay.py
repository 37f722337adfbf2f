"""Prioritised replay, and a buffer depth that follows what is measured: two remedies for stale experience."""

import numpy as np


class PrioritisedReplay:
    """The last ``capacity`` records, sampled in proportion to priority^alpha (Schaul et al. 2016, arXiv:1511.05952).

    ``dtype``: structured dtype of a record. A sum tree holds the priorities, so that adding, sampling and updating
    take O(log capacity), vectorised over the rows. New records get the highest priority seen. ``alpha`` 0 is uniform
    replay. Raises ValueError for a capacity below one or a negative alpha.

    >>> replay = PrioritisedReplay(4, np.dtype([("reward", "<f4")]), alpha=1.0)
    >>> replay.add(np.array([(1.0,), (2.0,)], replay.records.dtype))
    >>> replay.update([0, 1], [3.0, 1.0])
    >>> rows, index, weight = replay.sample(1000, np.random.default_rng(0), beta=1.0)
    >>> bool(abs((index == 0).mean() - 0.75) < 0.01), sorted(set(weight.tolist()))[1]
    (True, 1.0)
    """

    def __init__(self, capacity, dtype, alpha=0.6):
        if capacity < 1 or alpha < 0:
            raise ValueError("replay needs capacity >= 1 and alpha >= 0, not %s and %s" % (capacity, alpha))
        self.records, self.alpha = np.zeros(capacity, dtype), alpha
        self._leaves = 1 << max(0, capacity - 1).bit_length()
        self._tree = np.zeros(2 * self._leaves)
        self._highest, self._added = 1.0, 0

    def __len__(self):
        return min(self._added, len(self.records))

    def add(self, records):
        """Add ``records`` (a structured array, at most ``capacity``), overwriting the oldest."""
        if len(records) > len(self.records):
            raise ValueError("%d records do not fit a replay of %d" % (len(records), len(self.records)))
        index = (self._added + np.arange(len(records))) % len(self.records)
        self.records[index] = records
        self._added += len(records)
        self._set(index, self._highest**self.alpha)

    def sample(self, count, rng, beta=0.4):
        """Return ``(records, index, weight)`` of ``count`` draws, one from each of ``count`` equal shares of the mass.

        ``weight`` float32 corrects the bias of sampling, (N P(i))^-beta over its maximum (sec. 3.4). Raises
        LookupError while there is nothing to sample.
        """
        if not len(self):
            raise LookupError("there is nothing to sample yet")
        total = self._tree[1]
        mass = (np.arange(count) + rng.random(count)) * total / count
        node = np.ones(count, np.int64)
        while node[0] < self._leaves:
            left = self._tree[2 * node]
            right = mass >= left
            mass -= left * right
            node = 2 * node + right
        # Rounding may lead past the last record.
        index = np.minimum(node - self._leaves, len(self) - 1)
        probability = np.maximum(self._tree[self._leaves + index], 1e-12) / total
        weight = (len(self) * probability) ** -beta
        return self.records[index], index, (weight / weight.max()).astype(np.float32)

    def update(self, index, priority):
        """Set the priorities (positive, such as |TD error| plus a little) of the records at ``index``."""
        priority = np.asarray(priority, np.float64)
        self._highest = max(self._highest, float(priority.max()))
        self._set(np.asarray(index), priority**self.alpha)

    def _set(self, index, value):
        node = self._leaves + index
        self._tree[node] = value
        while node[0] > 1:
            node = np.unique(node // 2)
            self._tree[node] = self._tree[2 * node] + self._tree[2 * node + 1]


class AdaptiveDepth:
    """How many rollouts may wait: one more while actors wait too long for room, half as many when samples get too old.

    Additive increase, multiplicative decrease (Chiu and Jain 1989, doi:10.1016/0169-7552(89)90019-6). Age goes first:
    a stale sample harms learning, a waiting actor only costs time. ``most_wait`` is a share of an actor's time,
    ``oldest`` an age in any unit (seconds, or policy versions on arrival).

    >>> depth = AdaptiveDepth(highest=8, most_wait=0.1, oldest=100)
    >>> [depth.update(wait, age) for wait, age in [(0.5, 20), (0.5, 40), (0.0, 60), (0.5, 200)]]
    [2, 3, 3, 1]
    """

    def __init__(self, highest, oldest, most_wait=0.05, depth=1):
        if not 1 <= depth <= highest:
            raise ValueError("a depth of %s is not in 1..%s" % (depth, highest))
        self.highest, self.oldest, self.most_wait, self.depth = highest, oldest, most_wait, depth

    def update(self, wait_share, age):
        """Take the share of time that actors waited and the samples' mean age; return the depth to use from now on."""
        if age > self.oldest:
            self.depth = max(1, self.depth // 2)
        elif wait_share > self.most_wait:
            self.depth = min(self.highest, self.depth + 1)
        return self.depth
