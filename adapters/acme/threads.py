"""Acme's actors and learner at the same time, in threads of one process: what Launchpad's local_mt does.

Launchpad itself is not used: when its threads do not end within 10 s it kills the process, and PPO's learner, which
waits for experience in Reverb, never does.
"""

import threading
import time

import jax
import reverb
from acme import EnvironmentLoop
from acme.utils.loggers import NoOpLogger

from rlbench.probe.sampler import library_call

POLL_S = 0.1
# What a step under way at the end of the budget may take.
LAST_STEP_S = 10.0


class Stop(Exception):
    """Raised from the environment when the budget is used up: the loop ends on whole episodes only."""


class Distributed:
    """A replay server, a learner and ``actors`` actors as the library's distributed layout makes them."""

    def __init__(self, builder, spec, networks, policy, seed, actors):
        learner_key, *actor_keys = jax.random.split(jax.random.PRNGKey(seed), 1 + actors)
        self._server = reverb.Server(builder.make_replay_tables(spec), port=None)
        client = reverb.Client("localhost:%d" % self._server.port)
        self.learner = builder.make_learner(learner_key, networks, builder.make_dataset_iterator(client), client)
        self.actors = [
            builder.make_actor(key, policy, builder.make_adder(client), variable_source=self.learner)
            for key in actor_keys
        ]
        self._errors = []

    def run(self, environments):
        """Act and learn until every environment has raised Stop; return the environment loops."""
        loops = [EnvironmentLoop(e, a, logger=NoOpLogger()) for e, a in zip(environments, self.actors)]
        threads = [threading.Thread(target=self._act, args=(loop,), name="actor", daemon=True) for loop in loops]
        # A learner that waits for experience cannot be woken, not by the end of the server either: it is left behind.
        learning = threading.Thread(target=self._learn, args=(threads,), name="learner", daemon=True)
        for thread in (*threads, learning):
            thread.start()
        while any(thread.is_alive() for thread in threads) and not self._errors:
            library_call(threads[0].join, POLL_S)
            library_call(time.sleep, POLL_S)
        library_call(learning.join, LAST_STEP_S)
        if self._errors:
            raise self._errors[0]
        return loops

    def _act(self, loop):
        try:
            # Not loop.run(): that sets signal handlers, which only the main thread may.
            while True:
                loop.run_episode()
        except Stop:
            print("stopped: the budget is used up")
        except Exception as error:
            self._errors.append(error)

    def _learn(self, actors):
        try:
            while any(thread.is_alive() for thread in actors):
                self.learner.step()
        except Exception as error:
            self._errors.append(error)
