"""The board: what the processes of a run say about themselves, in shared memory; one writer for each row."""

from rlbench.pipeline.shared import LINE, SharedBlock, counter

FIELDS = (
    "env_steps",
    "rollouts",
    "wait_ns",
    "updates",
    "consumed",
    "learned",
    "dropped",
    "overtaken",
    "newest_ns",
    "lag_sum",
    "lag_max",
    "sent_bytes",
    "checksum",
    "beat",
)
_MESSAGE = 512
_ROW = LINE + _MESSAGE


class Board:
    """Rows of counters for ``actors`` and ``learners``; ``stop`` and ``rounds`` are for all to read.

    ``stop[0]`` is set by the trainer and means: end now. ``rounds[0]`` counts the rounds that learner 0 has finished.
    Every other counter is ``board.actor(i)[field][0]`` or ``board.learner(i)[field][0]``, ``field`` one of FIELDS;
    ``newest_ns`` is the time of the newest sample that a learner learned from, ``overtaken`` are older samples that it
    had taken, but not learned from, when the run ended. ``sent_bytes`` are those of the weights that learner 0
    published. ``checksum`` is that of a learner's final weights, ``beat`` grows with everything that a process does,
    waiting too.

    >>> board = Board(actors=2, learners=1)
    >>> board.actor(1)["env_steps"][0] = 40
    >>> board.total("env_steps")
    40
    """

    def __init__(self, actors, learners):
        self.actors, self.learners = actors, learners
        self._block = SharedBlock(2 * LINE + (actors + learners) * _ROW)
        self._open()

    def _open(self):
        self.stop, self.rounds = counter(self._block, 0), counter(self._block, LINE)

    def __getstate__(self):
        return {"actors": self.actors, "learners": self.learners, "_block": self._block}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._open()

    def actor(self, index):
        """Counters of actor ``index`` by field."""
        return self._row(index)

    def learner(self, index):
        """Counters of learner ``index`` by field."""
        return self._row(self.actors + index)

    def total(self, name):
        """Sum of a field over all rows."""
        return sum(self._row(i)[name][0] for i in range(self.actors + self.learners))

    def complain(self, row, message):
        """Leave the reason why process ``row`` (actors first, then learners) ends."""
        text = message.encode()[: _MESSAGE - 1]
        start = self._start(row) + LINE
        self._block.memory[start : start + len(text)] = text

    def complaint(self, row):
        """Return what process ``row`` left as its reason, or an empty string."""
        start = self._start(row) + LINE
        return bytes(self._block.memory[start : start + _MESSAGE]).rstrip(b"\0").decode(errors="replace")

    def _start(self, row):
        return 2 * LINE + row * _ROW

    def _row(self, row):
        return {name: counter(self._block, self._start(row) + 8 * i) for i, name in enumerate(FIELDS)}
