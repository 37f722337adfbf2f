"""What a run of the pipeline can be told."""

from dataclasses import dataclass, field

from rlbench.pipeline.staleness import FORMS


@dataclass
class Settings:
    """Settings by the field's names; counts are positive, ``env_steps`` is the budget over all environments.

    mode            "sync": one process does all. "workers": actor processes that wait for the learner. "async":
                    actor processes that never wait for it, but for room in their ring.
    actors, learners  processes; ``n_envs`` is a multiple of the first, that of the second
    depth           rollouts that may wait per actor
    oldest          asynchronous: the depth follows actors' waiting and samples' mean staleness on arrival, which is
                    kept below this (None: the depth is fixed), see ``rlbench.pipeline.replay.AdaptiveDepth``
    overwrite       a full ring overwrites its oldest rollout instead of making its actor wait
    weight_sync_every    asynchronous: updates between two publications of the weights (and broadcasts between learners)
    gradient_sync_every  updates between two all-reduces of the learners' gradients
    correction      "vtrace": importance sampling corrects for the policy that acted; "none". Asynchronous only
    staleness_form, staleness_threshold  weight of a sample in the loss, see ``rlbench.pipeline.staleness``
    lora_ranks      ranks of low-rank adapters over the linear layers of actor and of critic, first layer first, the
                    last for all that follow ([8, 8, 8, 4]: 8 for the first three, 4 for the rest); None: no adapters
    freeze_updates  with adapters: the layers under them are frozen for so many updates, in which only the adapters
                    are sent, and learn and are sent too from then on; 0: never frozen
    silent_s        a process that has not moved for so many seconds is named
    start_method    "fork" or "spawn"; a fork waits for ever where PyTorch has used several threads before
    """

    env_steps: int
    mode: str = "sync"
    n_envs: int = 4
    actors: int = 0
    learners: int = 1
    algorithm: str = "ppo"
    learning_rate: float = 3e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    n_steps: int = 128
    batch_size: int = 128
    n_epochs: int = 4
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    normalize_advantage: bool = True
    adam_eps: float = 1e-5
    net_arch: list = field(default_factory=lambda: [64, 64])
    activation: str = "tanh"
    depth: int = 1
    oldest: int | None = None
    overwrite: bool = False
    weight_sync_every: int = 10
    gradient_sync_every: int = 1
    correction: str = "vtrace"
    staleness_form: str = "none"
    staleness_threshold: int | None = None
    lora_ranks: list | None = None
    freeze_updates: int = 1000
    seed: int = 0
    silent_s: float = 5.0
    start_method: str = "fork"

    def __post_init__(self):
        for name, known in (
            ("mode", ("sync", "workers", "async")),
            ("algorithm", ("ppo", "a2c")),
            ("correction", ("vtrace", "none")),
            ("staleness_form", FORMS),
        ):
            if getattr(self, name) not in known:
                raise ValueError("%s '%s' is unknown: use %s" % (name, getattr(self, name), " or ".join(known)))
        if self.mode == "sync":
            self.actors = self.learners = 1
        if self.actors < 1 or self.n_envs % self.actors:
            raise ValueError("n_envs %d is no multiple of %d actors" % (self.n_envs, self.actors))
        if self.learners < 1 or self.actors % self.learners:
            raise ValueError("%d actors cannot be shared out among %d learners" % (self.actors, self.learners))
        if self.overwrite and self.depth < 2:
            raise ValueError("overwriting needs a depth of at least 2: one rollout to read while another is written")
        if self.lora_ranks is not None and (not self.lora_ranks or min(self.lora_ranks) < 1):
            raise ValueError("lora_ranks %s: give at least one rank, each of at least 1" % (self.lora_ranks,))
        if self.freeze_updates < 0:
            raise ValueError("freeze_updates is %d: use 0 or more" % self.freeze_updates)
        if self.algorithm == "a2c":
            self.n_epochs, self.batch_size = 1, self.round_samples
        if self.round_samples % self.batch_size:
            raise ValueError(
                "batch_size %d does not divide a learner's %d samples of a round"
                % (self.batch_size, self.round_samples)
            )

    @property
    def envs_per_actor(self):
        """Environments of each actor."""
        return self.n_envs // self.actors

    @property
    def shards_per_learner(self):
        """Rollouts that a learner takes in each round, one for each of its actors."""
        return self.actors // self.learners

    @property
    def round_samples(self):
        """Samples that a learner learns from in a round."""
        return self.n_steps * self.n_envs // self.learners

    @property
    def rounds(self):
        """Rounds that the budget amounts to, where actors and learner take turns."""
        return -(-self.env_steps // (self.n_steps * self.n_envs))
