"""What the guest knows of its trial: the scenario's parts by their standard names, and the instrumented environment."""

from rlbench.probe import BARE, MEASURE, clock
from rlbench.probe.env import CountEnv, TapEnv, make_plain, stamped_space
from rlbench.probe.ledger import env_steps

# Moments of environment 0 that both arms of an overhead run note.
MARKS = 64
_SCAN_NS = 50_000_000


class Trial:
    """The trial that an adapter runs.

    Besides the attributes set below it has every hyperparameter of the scenario's algorithm, network and topology by
    its own name (``learning_rate``, ``gamma``, ``n_steps``, ``net_arch``, ``n_envs``, ...). Plain data: it can be
    pickled into worker processes.
    """

    def __init__(self, job):
        scenario = job["scenario"]
        self.folder, self.seed, self.arm = job["folder"], job["seed"], job["arm"]
        self.variant = job["variant"]
        self.env_id, self.env_kwargs = scenario["environment"]["id"], scenario["environment"]["kwargs"]
        self.algorithm = scenario["algorithm"]["name"]
        for table in ("algorithm", "network", "topology"):
            for key, value in scenario[table].items():
                if key != "name":
                    setattr(self, key, value)
        self.env_steps = scenario["budget"]["env_steps"]
        self.seconds = scenario["budget"]["seconds"]
        self.marks = []
        self._made = []

    def __getstate__(self):
        return {**self.__dict__, "_made": [], "marks": []}

    def make_env(self, index=None):
        """Return the instrumented Gymnasium environment ``index`` (None: the next free one), float32 or uint8."""
        env = make_plain(self.env_id, self.env_kwargs)
        if self.arm != MEASURE:
            every = max(1, self.env_steps // self.n_envs // MARKS)
            env = CountEnv(env, [] if self._made else self.marks, every)
        if self.arm != BARE:
            env = TapEnv(env, self.folder, index)
        self._made.append(env)
        return env

    def spaces(self):
        """Return ``(layout, dim, observation space, action space)`` as the library sees them."""
        env = make_plain(self.env_id, self.env_kwargs)
        layout, dim, space = stamped_space(env.observation_space)
        action_space = env.action_space
        env.close()
        return layout, dim, space, action_space

    def metadata(self):
        """Return what the environment says of itself; ``tokens_per_step`` where a step is so many generated tokens."""
        env = make_plain(self.env_id, self.env_kwargs)
        env.close()
        return env.metadata


class Probe:
    """What an adapter may ask and tell while it trains: ``should_stop``, ``steps``, and the manual taps.

    ``acted``, ``learned``, ``updated``, ``share`` and ``describe_optimizer`` are those of rlbench.probe.taps.Taps, for
    frameworks without hooks; in the bare arm of an overhead run they do nothing.
    """

    def __init__(self, trial, taps):
        self._trial, self._started = trial, clock.now_ns()
        self._scanned, self._steps = 0, 0
        self.reported = []
        self.acted = taps.acted if taps else _nothing
        self.learned = taps.learned if taps else _nothing
        self.updated = taps.updated if taps else _nothing
        self.share = taps.share if taps else _nothing
        self.describe_optimizer = taps.describe_optimizer if taps else _nothing

    def report(self, name, value, note=""):
        """Pass on a number from the library's own log, to be shown beside ours; ``name`` is the figure it claims to be.

        ``note`` says what it covers: a window, the last minibatch, ...
        """
        self.reported.append({"name": name, "value": float(value), "note": note})

    def steps(self):
        """Return the environment steps made so far, over all environments and processes.

        Environments in other processes are counted from their ledgers, at most every 50 ms.
        """
        trial = self._trial
        if trial.mode == "sync":
            return sum(env.steps for env in trial._made)
        now = clock.now_ns()
        if now - self._scanned > _SCAN_NS:
            self._scanned, self._steps = now, env_steps(trial.folder)[0]
        return self._steps

    def should_stop(self):
        """Return True when the budget, in steps or in seconds of training, is used up."""
        limit = self._trial.seconds
        if limit is not None and clock.now_ns() - self._started > limit * 1e9:
            return True
        return self.steps() >= self._trial.env_steps


def _nothing(*args, **kwargs):
    """Stand in for a tap in the bare arm."""
