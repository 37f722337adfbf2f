"""Staleness control: what a sample of an old policy still counts for.

Staleness is the learner's version minus the version that acted on the sample, both in optimizer steps.
"""

import numpy as np

FORMS = ("reciprocal", "scaled", "none")


def weights(staleness, form="reciprocal", threshold=None):
    """Return the weight of each sample in the loss, float32, of the shape of ``staleness`` (integers >= 0).

    ``reciprocal``: 1 / (1 + s). ``scaled``: 1 / (1 + 0.1 s), which decays ten times more slowly (it is no
    exponential). ``none``: 1. A sample staler than ``threshold`` (None: no limit) weighs 0: it is dropped.

    Raises ValueError for another form or a negative staleness: a sample cannot be newer than its learner.

    >>> weights([0, 1, 9, 20], "reciprocal", threshold=10).tolist()
    [1.0, 0.5, 0.10000000149011612, 0.0]
    >>> weights([0, 10], "scaled").tolist()
    [1.0, 0.5]
    """
    s = np.asarray(staleness)
    if form not in FORMS:
        raise ValueError("staleness form '%s' is unknown: use one of %s" % (form, ", ".join(FORMS)))
    if s.size and s.min() < 0:
        raise ValueError("a staleness of %s is negative: the sample would be newer than its learner" % s.min())
    slope = {"reciprocal": 1.0, "scaled": 0.1, "none": 0.0}[form]
    result = (1 / (1 + slope * s)).astype(np.float32)
    if threshold is not None:
        result[s > threshold] = 0
    return result


def drop_share(weight):
    """Return the share of samples that weigh nothing, 0..1 (0 when there are none).

    >>> drop_share(np.array([1.0, 0.0, 0.5, 0.0]))
    0.5
    """
    weight = np.asarray(weight)
    return float((weight == 0).mean()) if weight.size else 0.0


def effective_sample_size(weight):
    """Return Kish's effective number of samples, (sum w)^2 / sum w^2 (Kish 1965, Survey Sampling, 11.7).

    It is n for n equal weights and 1 when one sample has all the weight; 0 when nothing has any.

    >>> effective_sample_size(np.array([0.5, 0.5, 0.5, 0.0]))
    3.0
    """
    weight = np.asarray(weight, np.float64)
    squares = float((weight**2).sum())
    return float(weight.sum()) ** 2 / squares if squares else 0.0
