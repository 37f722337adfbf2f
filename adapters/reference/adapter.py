"""Drives rlbench's own pipeline."""

from rlbench.pipeline.policy import distribution_of
from rlbench.pipeline.settings import Settings
from rlbench.pipeline.trainer import train

SHARED = ("n_envs", "learning_rate", "gamma", "gae_lambda", "n_steps", "ent_coef", "vf_coef", "max_grad_norm")
PPO = ("clip_range", "batch_size", "n_epochs", "normalize_advantage")
# 8 for the first three layers of actor and of critic, 4 for the rest.
LORA_RANKS = [8, 8, 8, 4]


class Adapter:
    def skip(self, trial):
        if trial.mode != "sync" and trial.n_envs % trial.workers:
            return "every actor has the same number of environments: n_envs must be a multiple of workers"
        return None

    def train(self, trial, probe):
        learners = 2 if trial.variant == "learners2" else 1
        given = {name: getattr(trial, name) for name in SHARED + (PPO if trial.algorithm == "ppo" else ())}
        if "batch_size" in given:
            # Every learner takes its share of a minibatch: one optimizer step is over all of them.
            given["batch_size"] //= learners
        settings = Settings(
            mode=trial.mode,
            algorithm=trial.algorithm,
            env_steps=trial.env_steps,
            actors=trial.workers,
            learners=learners,
            lora_ranks=LORA_RANKS if trial.variant == "lora" else None,
            net_arch=trial.net_arch,
            activation=trial.activation,
            seed=trial.seed,
            **given,
        )
        _, dim, _, actions = trial.spaces()
        # The budget in steps is the pipeline's own; the probe knows that in seconds.
        done = train(trial.make_env, dim, distribution_of(actions), settings, probe.should_stop)
        probe.report("env_steps", done.env_steps, "steps of finished rollouts")
        probe.report("env_steps_per_s", done.env_steps / done.seconds, "start of the processes included")
        probe.report("updates", done.updates, "version of the last published weights")
        probe.report("lag_mean", done.lag_mean, "every consumption of the run, its first round included")
        probe.report("lag_max", done.lag_max, "every consumption of the run, its first round included")
        probe.report("sent_bytes", done.sent_bytes, "weights published to actors, version 0 aside; not what gloo moves")
        missed = done.dropped + done.overtaken
        share = missed / (done.learned + missed)
        probe.report("never_learned", share, "too stale, overwritten, or older than what was learned from last")
        return done.policy.greedy
