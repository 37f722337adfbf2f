"""Learners: rollouts in, optimizer steps out."""

import time
import zlib

import numpy as np
import torch
import torch.distributed as dist

from rlbench.pipeline import algorithm, returns, staleness
from rlbench.pipeline.actor import wait_until
from rlbench.pipeline.adam import AdamFlat
from rlbench.pipeline.gradient import Gradient, applies
from rlbench.pipeline.lora import base_last, freeze_base, thaw_base
from rlbench.pipeline.replay import AdaptiveDepth
from rlbench.pipeline.sync import FlatBuffer, all_reduce_gradients, broadcast_packed


class Learner:
    """Learns from rollouts with PPO or an actor-critic loss; ``version`` counts its optimizer steps.

    ``policy``: ActorCritic; its parameters move into one flat buffer, ``changing`` first elements of which learn: all,
    unless the layers under its adapters are still frozen. ``publish(flat, version)`` is called with these every
    ``weight_sync_every`` updates (None: never). ``row``: counters to keep (see Board), any mapping of one-element
    sequences. With several learners a ``torch.distributed`` group must be initialised, and ``rank`` seeds the order of
    the minibatches.
    """

    def __init__(self, policy, settings, row, publish=None, rank=0):
        self.policy, self.settings, self.row, self._publish = policy, settings, row, publish
        parameters, adapters = base_last(policy)
        frozen = settings.freeze_updates > 0
        if frozen:
            freeze_base(policy)
        self.buffer = FlatBuffer(parameters)
        self.changing = adapters if frozen else self.buffer.flat.numel()
        self.optimizer = AdamFlat(self.buffer, settings.learning_rate, eps=settings.adam_eps, learning=self.changing)
        self.version = 0
        self._differentiate = Gradient(policy, settings) if applies(policy) else self.by_autograd
        self._order = torch.Generator().manual_seed(settings.seed + 1000 * rank)

    def learn(self, records):
        """Take the optimizer steps of one round over ``records``: a list of rollouts (rows of ``rollout_dtype``)."""
        batch, versions = self._batch(records)
        s = self.settings
        size = len(versions)
        for _ in range(s.n_epochs):
            order = torch.randperm(size, generator=self._order)
            shuffled = [part[order].split(s.batch_size) for part in batch]
            self._count(versions[order.numpy()].reshape(-1, s.batch_size))
            for minibatch in zip(*shuffled):
                self._step(*minibatch)
        self.row["learned"][0] += size if len(batch) < 6 else int((batch[5] > 0).sum())
        self.row["updates"][0] = self.version
        self.row["newest_ns"][0] = max(self.row["newest_ns"][0], *(int(record["time_ns"][-1]) for record in records))

    def fresh(self, record):
        """Return whether any sample of a rollout is within the staleness threshold."""
        limit = self.settings.staleness_threshold
        return limit is None or self.version - int(record["version"].max()) <= limit

    def _step(self, *minibatch):
        """One optimizer step on one minibatch: columns as ``_batch`` returns them."""
        s = self.settings
        if self.version == s.freeze_updates:
            self._thaw()
        gradient = self.buffer.gradient[: self.changing]
        self._differentiate(*minibatch)
        if s.learners > 1:
            all_reduce_gradients(gradient, self.version, s.gradient_sync_every)
        norm = torch.linalg.vector_norm(gradient)
        gradient.mul_((s.max_grad_norm / (norm + 1e-6)).clamp_(max=1.0))
        self.optimizer.step()
        self.version += 1
        if self._publish is not None and self.version % s.weight_sync_every == 0:
            self.synchronise(self._publish)

    def synchronise(self, publish):
        """Give all learners the first one's weights, and ``publish(flat, version)`` those that can have changed."""
        if self.settings.learners > 1:
            broadcast_packed(self.buffer, elements=self.changing)
        publish(self.buffer.flat[: self.changing], self.version)

    def _thaw(self):
        thaw_base(self.policy)
        self.optimizer.thaw()
        self.changing = self.buffer.flat.numel()

    def by_autograd(self, observations, actions, old_log_prob, advantages, targets, weights=None):
        """Write the gradient of the minibatch's loss into the flat buffer."""
        s, policy = self.settings, self.policy
        outputs, values = policy(observations)
        log_prob, log_p = policy.distribution.log_prob(outputs, actions, policy.log_std)
        if s.algorithm == "ppo":
            if s.normalize_advantage:
                advantages = algorithm.normalised(advantages, weights)
            loss = algorithm.ppo_loss(log_prob, old_log_prob, advantages, s.clip_range, weights)
        else:
            loss = algorithm.policy_gradient_loss(log_prob, advantages, weights)
        loss = loss + s.vf_coef * algorithm.value_loss(values, targets, weights)
        if s.ent_coef:
            loss = loss - s.ent_coef * policy.distribution.entropy(log_p, policy.log_std)
        self.buffer.zero_gradient()
        loss.backward()

    def _batch(self, records):
        """Return ``([observations, actions, log_prob, advantages, targets(, weights)], versions)``, rows first."""
        parts = [self._prepare(record) for record in records]
        batch = [torch.cat(column) for column in list(zip(*parts))[:-1]]
        versions = np.concatenate([part[-1] for part in parts])
        s = self.settings
        if s.staleness_form != "none" or s.staleness_threshold is not None:
            weight = staleness.weights(self.version - versions, s.staleness_form, s.staleness_threshold)
            self.row["dropped"][0] += int((weight == 0).sum())
            batch.append(torch.from_numpy(weight))
        return batch, versions

    @torch.no_grad()
    def _prepare(self, record):
        """Return one rollout's columns; rows are (step, environment) in order."""
        s = self.settings
        steps, n_envs = record["reward"].shape
        everything = torch.from_numpy(record["observation"])
        observations = everything[:-1].flatten(0, 1)
        values = self.policy.critic(everything.flatten(0, 1)).view(steps + 1, n_envs).numpy()
        cut = np.nonzero(record["truncated"])
        end_values = None
        if len(cut[0]):
            end_values = np.zeros((steps, n_envs), np.float32)
            end_values[cut] = self.policy.critic(torch.from_numpy(record["final"][cut])).squeeze(-1).numpy()
        actions = torch.from_numpy(record["action"]).flatten(0, 1)
        log_prob = torch.from_numpy(record["log_prob"]).flatten()
        ends = record["terminated"] | record["truncated"]
        common = (record["reward"], values[:-1], ends, values[-1])
        if s.mode == "async" and s.correction == "vtrace":
            outputs = self.policy.actor(observations)
            now, _ = self.policy.distribution.log_prob(outputs, actions, self.policy.log_std)
            targets, advantages = returns.vtrace(
                *common,
                record["log_prob"],
                now.view(steps, n_envs).numpy(),
                s.gamma,
                trace_lambda=s.gae_lambda,
                end_values=end_values,
            )
            if s.algorithm == "ppo":
                # PPO's ratio corrects the advantage itself: the lambda-advantage, which on-policy is that of GAE.
                advantages = targets - values[:-1]
        else:
            advantages, targets = returns.gae(*common, s.gamma, s.gae_lambda, end_values)
        columns = [torch.from_numpy(np.ascontiguousarray(part)).flatten() for part in (advantages, targets)]
        return observations, actions, log_prob, *columns, np.repeat(record["version"], n_envs)

    def _count(self, versions):
        """Add the lags of the minibatches (rows of ``versions``) that the next optimizer steps consume."""
        lags = np.arange(self.version, self.version + len(versions))[:, None] - versions
        self.row["consumed"][0] += lags.size
        self.row["lag_sum"][0] += int(lags.sum())
        self.row["lag_max"][0] = max(self.row["lag_max"][0], int(lags.max()))


def run_learner(rank, policy, settings, buffer, publisher, board, store):
    """Be learner ``rank``: drain the shards ``rank``, ``rank + learners``, ... until the board says stop.

    ``store``: path of the file that the learners meet by, where there are several. Learner 0 publishes weights.
    """
    s, row = settings, board.learner(rank)
    if s.learners > 1:
        dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=s.learners)
    in_turn = s.mode == "workers"

    def publish(flat, version):
        if rank == 0:
            publisher.publish(flat, version)
            row["sent_bytes"][0] += flat.numel() * flat.element_size()

    learner = Learner(policy, s, row, None if in_turn else publish, rank)
    shards = [buffer.shard(i) for i in range(rank, s.actors, s.learners)]
    adapt = _depth_control(s, shards, [board.actor(i) for i in range(rank, s.actors, s.learners)])
    rounds = 0
    while not (in_turn and rounds == s.rounds):
        records = _take(shards, s.shards_per_learner, learner.fresh, board, row)
        if _agreed(records is None, s.learners):
            break
        adapt(records, learner.version)
        learner.learn(records)
        rounds += 1
        if in_turn:
            learner.synchronise(publish)
            if rank == 0:
                board.rounds[0] = rounds
    learner.synchronise(publish)
    if s.learners > 1:
        dist.destroy_process_group()
    row["checksum"][0] = zlib.crc32(learner.buffer.flat.numpy())


def _take(shards, wanted, fresh, board, row):
    """Wait for ``wanted`` rollouts, oldest first within a shard, and return copies; None once the board says stop.

    Their slots are free at once, so that actors go on while the learner learns. Rollouts that are not ``fresh`` are
    dropped.
    """
    records = []

    def anything():
        row["beat"][0] += 1
        return board.stop[0] or any(len(shard) for shard in shards)

    while not board.stop[0]:
        for shard in shards:
            found = shard.get(1)
            if not len(found):
                continue
            record = found.copy()[0]
            shard.release()
            if fresh(record):
                records.append(record)
            else:
                row["dropped"][0] += record["reward"].size
            if len(records) == wanted:
                return records
        row["wait_ns"][0] += wait_until(anything)
    row["overtaken"][0] += overtaken(records, row["newest_ns"][0])
    return None


def overtaken(records, newest_ns):
    """Return how many samples of the rollouts ``records`` are older than the newest that was learned from."""
    return sum(int((record["time_ns"] <= newest_ns).sum()) * record["reward"].shape[1] for record in records)


def _depth_control(settings, shards, actors):
    """Return ``adapt(records, version)``, which sets how many rollouts may wait in ``shards`` from now on."""
    if settings.oldest is None or settings.mode != "async":
        return lambda records, version: None
    depth = AdaptiveDepth(settings.depth, settings.oldest)
    begun, waited = time.monotonic_ns(), 0

    def adapt(records, version):
        nonlocal begun, waited
        now, total = time.monotonic_ns(), sum(row["wait_ns"][0] for row in actors)
        share = (total - waited) / max(1, (now - begun) * len(actors))
        age = version - np.mean([record["version"].mean() for record in records])
        depth.update(share, age)
        for shard in shards:
            shard.limit = depth.depth
        begun, waited = now, total

    for shard in shards:
        shard.limit = depth.depth
    return adapt


def _agreed(mine, learners):
    """Return whether any learner wants to end: all must leave the loop in the same round."""
    if learners == 1:
        return mine
    flag = torch.tensor([float(mine)])
    dist.all_reduce(flag, dist.ReduceOp.MAX)
    return bool(flag.item())
