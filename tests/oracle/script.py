"""The oracle's scripts: events with their times, written down together with what the figures must come out as.

A script is played by the adapter in the guest and read by the tests, which compute the expected figures from it with
plain loops, knowing nothing of stamps, fingerprints or joins.
"""

from oracle_env import EPISODE

MS = 1_000_000
LEARNER = "learner"


class Script:
    """Events in the order of their times (ns from the start); ``process`` says who plays them.

    ``samples[(env, number)]`` holds ``ready``, ``action`` (None: no action came back) and ``acting`` (its version);
    ``consumptions`` are ``(sample or None, version at consumption, time)``; ``updates`` the times of the updates.
    """

    def __init__(self, n_envs, actors=False):
        self.n_envs, self.actors = n_envs, actors
        self.now, self.learner_now, self.version = 0, 0, 0
        self.events, self.samples, self.consumptions, self.updates, self.batches = [], {}, [], [], []
        self._number = [0] * n_envs
        self._length = [0] * n_envs
        for env in range(n_envs):
            self._reset(env)

    def process(self, env):
        """Name of the process that steps ``env``."""
        return "actor-%d" % env if self.actors else LEARNER

    def collect(self, steps, version, act=1 * MS, step=2 * MS, envs=None):
        """Every environment (or those of ``envs``) makes ``steps`` steps by ``version``, in the times given.

        Returns the samples in the order in which they were acted on.
        """
        done = []
        for _ in range(steps):
            current = [(env, self._number[env] - 1) for env in (range(self.n_envs) if envs is None else envs)]
            self.now += act
            for sample in current:
                self._event(self.process(sample[0]), "act", samples=[sample], version=version)
            for env, number in current:
                action = self.now
                self.now += step
                self.samples[env, number].update(action=action, acting=version)
                self._event(self.process(env), "step", env=env, action=action, ready=self.now)
                self._observe(env)
                self._length[env] += 1
                if self._length[env] == EPISODE:
                    self._reset(env)
            done += current
        return done

    def learn(self, samples, forward=1 * MS, backward=3 * MS, unreadable=(), beside=False):
        """One update on ``samples``; those whose position is in ``unreadable`` arrive with their stamp destroyed.

        ``beside``: the learner works while the actors go on, in a process of its own; else they wait for it.
        """
        start = max(self.learner_now, self.now)
        fed, made = start + forward, start + forward + backward
        self._event(LEARNER, "learn", time=fed, samples=list(samples), unreadable=list(unreadable))
        self.batches.append((fed, len(samples)))
        for position, sample in enumerate(samples):
            known = None if position in unreadable else sample
            self.consumptions.append((known, self.version, fed))
        self.version += 1
        self.updates.append(made)
        self._event(LEARNER, "update", time=made, version=self.version)
        self.learner_now = made
        if not beside:
            self.now = made

    def made(self):
        """The newest version that exists now."""
        return sum(time <= self.now for time in self.updates)

    def terminal(self, sample):
        """The last observation of the episode that ``sample`` belongs to: no action was ever taken on it."""
        env, number = sample
        while self.samples[env, number]["action"] is not None:
            number += 1
        return env, number

    def _reset(self, env):
        self.now += MS // 2
        self._length[env] = 0
        self._event(self.process(env), "reset", env=env, ready=self.now)
        self._observe(env)

    def _observe(self, env):
        self.samples[env, self._number[env]] = {"ready": self.now, "action": None, "acting": None}
        self._number[env] += 1

    def _event(self, process, kind, **details):
        self.events.append({"process": process, "kind": kind, "time": self.now} | details)


def sync():
    """Four rounds: three steps in each of two environments, then two epochs of two minibatches of three samples."""
    script = Script(2)
    for _ in range(4):
        rollout = script.collect(3, script.version)
        for _ in range(2):
            script.learn(rollout[:3])
            script.learn(rollout[3:])
    return script


def late():
    """The actor lags one round behind; a round's samples wait for the next round; some are dropped, one is reused."""
    script = Script(2)
    acting, waiting = 0, []
    for _ in range(6):
        rollout = script.collect(2, acting)
        acting = script.version
        if waiting:
            script.learn(waiting[:2])
            script.learn(waiting[1:3])
        # The fourth sample of every round is thrown away.
        waiting = rollout
    return script


def unreadable():
    """As sync, but one row in twenty-five of the learner's arrives rescaled: its stamp names nothing."""
    script = Script(2)
    for _ in range(5):
        rollout = script.collect(5, script.version)
        for _ in range(5):
            script.learn(rollout, unreadable=[4] if len(script.updates) % 5 < 2 else [])
    return script


def overwritten(rounds=4, **times):
    """A buffer that keeps views: by the time it is learned from, each row is the last observation of its episode."""
    script = Script(2)
    for _ in range(rounds):
        rollout = script.collect(EPISODE, script.version, **times)
        script.learn([script.terminal(sample) for sample in rollout])
    return script


def actors():
    """Two actor processes that never wait; new weights reach them two updates late; a queue of four rounds drops the
    oldest; learning goes on beside them."""
    script = Script(2, actors=True)
    queue = []
    for turn in range(12):
        queue.append(script.collect(2, max(0, script.made() - 2)))
        queue = queue[-4:]
        if turn % 3 == 2:
            for _ in range(2):
                batch = queue.pop(0)
                script.learn(batch, beside=True)
                script.learn(batch, beside=True)
    return script


def sound():
    """Nothing holds it back: acting, stepping and learning take about a third of the time each."""
    return _rounds()


def _rounds(rounds=8, backward=2 * MS, acting=None, taken=None, **times):
    """Rounds of three steps in each of two environments and two updates on all of them (or on ``taken``)."""
    script = Script(2)
    for _ in range(rounds):
        version = script.version if acting is None else acting(script)
        rollout = script.collect(3, version, **{"act": 2 * MS, "step": 1 * MS, **times})
        for _ in range(2):
            script.learn(rollout[:taken], backward=backward)
    return script


def never_synced():
    """Acts with the first weights to the end."""
    return _rounds(rounds=30, acting=lambda script: 0)


def stale():
    """Acts with weights that are four updates old."""
    return _rounds(acting=lambda script: max(0, script.version - 4))


def _workers(uneven):
    """Two actor processes; ``uneven(turn)`` says which of them step in each turn."""
    script = Script(2, actors=True)
    rollout = []
    for turn in range(24):
        rollout += script.collect(2, script.made(), envs=uneven(turn), act=1 * MS)
        if turn % 4 == 3:
            script.learn(rollout, backward=6 * MS)
            script.learn(rollout, backward=6 * MS)
            rollout = []
    return script


SCRIPTS = {"sync": sync, "late": late, "unreadable": unreadable, "overwritten": overwritten, "actors": actors}
FAULTS = {
    "sound": sound,
    "stale": stale,
    "never_synced": never_synced,
    "env_bound": lambda: _rounds(step=8 * MS),
    "act_bound": lambda: _rounds(act=12 * MS),
    "learner_bound": lambda: _rounds(backward=30 * MS),
    "overflow": lambda: _rounds(taken=3),
    "foreign": lambda: overwritten(8, act=3 * MS, step=1 * MS),
    "silent": lambda: _workers(lambda turn: [0] if turn > 12 else [0, 1]),
    "straggler": lambda: _workers(lambda turn: [0, 1] if turn % 4 == 3 else [0]),
    "crowded": lambda: _workers(lambda turn: [0, 1]),
}
