"""Drives TRL's GRPOTrainer on a token environment: prompts and rewards are the environment's, a token is a step.

What is measured. TRL generates with transformers' ``generate``, whose stopping criteria are called with each newest
token of the batch: there every row's environment takes its step, so waits and latencies are those of generation as it
happens. Token ids cannot carry stamps. The stamped observations travel beside them, as one more tensor of the batch
that TRL shuffles, splits and keeps for reuse, and the loss reports the stamps that arrive with its tokens; a token
other than the one that the stamped environment was stepped with counts as foreign. Weights are told by the first
attention matrix, read when the model is called to act and after each optimizer step.
"""

import os
import tempfile

# Model, tokenizer and prompts are made in memory.
os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from rlbench.probe import BARE
from rlbench.probe.env import make_plain
from rlbench.probe.sampler import library_call
from rlbench.probe.stamp import decode, extract
from rlbench.probe.tokens import tokens_of

# Completions of one prompt, which GRPO compares with each other: TRL's default.
GROUP = 8
HEADS = 4


class Adapter:
    def skip(self, trial):
        if not trial.metadata().get("tokens_per_step"):
            return "it trains language models: the environment must declare that a step is a token (tokens-ppo does)"
        length = make_plain(trial.env_id, trial.env_kwargs).unwrapped.length
        if trial.n_steps != length:
            return "it generates whole completions: n_steps must be their length, %d" % length
        if trial.batch_size % length:
            return "it learns from whole completions: batch_size must be a multiple of their length, %d" % length
        if trial.n_envs % GROUP:
            return "it compares %d completions of each prompt: n_envs must be a multiple of that" % GROUP
        return None

    def train(self, trial, probe):
        plain = make_plain(trial.env_id, trial.env_kwargs).unwrapped
        tokenizer = _tokenizer(plain.vocabulary)
        model = Policy(_config(trial, plain, tokenizer))
        model.walk = walk = Walk(trial, probe, model.transformer.h[0].attn.c_attn.weight.detach().numpy())
        model.register_forward_pre_hook(walk.before_forward)
        rollouts = -(-trial.env_steps // (trial.n_envs * trial.n_steps))
        batches = trial.n_envs * trial.n_steps // trial.batch_size
        with tempfile.TemporaryDirectory() as folder:
            arguments = GRPOConfig(
                output_dir=folder,
                max_steps=rollouts * batches * trial.n_epochs,
                per_device_train_batch_size=trial.batch_size // plain.length,
                steps_per_generation=batches,
                num_iterations=trial.n_epochs,
                num_generations=GROUP,
                max_completion_length=plain.length,
                generation_kwargs={"suppress_tokens": [tokenizer.pad_token_id, tokenizer.eos_token_id]},
                learning_rate=trial.learning_rate,
                lr_scheduler_type="constant",
                epsilon=trial.clip_range,
                entropy_coef=trial.ent_coef,
                max_grad_norm=trial.max_grad_norm,
                scale_rewards="group" if trial.normalize_advantage else "none",
                seed=trial.seed,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
            )
            trainer = Trainer(
                model=model,
                reward_funcs=walk.rewards,
                args=arguments,
                train_dataset=_prompts(plain, trial.seed, rollouts * trial.n_envs // GROUP),
                processing_class=tokenizer,
                callbacks=[Watch(probe, walk.weights, batches * trial.n_epochs)],
            )
            library_call(trainer.train)
        for env in walk.envs:
            env.close()
        return _greedy(model.eval(), plain)


class Policy(GPT2LMHeadModel):
    """GPT-2 whose ``generate`` steps the environments with every token."""

    walk = None

    def generate(self, input_ids, **kwargs):
        self.walk.begin(input_ids)
        sequences = library_call(super().generate, input_ids=input_ids, stopping_criteria=[self.walk], **kwargs)
        self.walk.acting = False
        return sequences


class Walk:
    """Row i of the batch that is being generated walks through environment i."""

    def __init__(self, trial, probe, weights):
        self.envs = [trial.make_env(index) for index in range(trial.n_envs)]
        self.probe, self.weights = probe, weights
        self.layout, self.dim = trial.spaces()[:2]
        self.stamping, self.acting = trial.arm != BARE, False
        # The token that each environment was stepped with, by the number of the observation that it answers.
        self.taken = np.full((2 * trial.env_steps // trial.n_envs + 4 * trial.n_steps, trial.n_envs), -1)

    def begin(self, prompts):
        """Give the environments the batch's prompts."""
        resets = [env.reset(options={"prompt": row}) for env, row in zip(self.envs, prompts.tolist())]
        self.observations = np.stack([observation for observation, _ in resets])
        self.returns, self.history, self.acting = np.zeros(len(self.envs)), [], True

    def before_forward(self, model, args):
        """Report the acting pass over the observations that wait for their tokens."""
        if self.acting:
            self.probe.acted(self.observations, self.weights)

    def __call__(self, input_ids, scores, **kwargs):
        """Step every environment with its row's newest token; return which completions are over."""
        tokens = input_ids[:, -1].numpy()
        self.history.append(self.observations)
        if self.stamping:
            env, number = decode(self.layout, extract(self.layout, self.dim, self.observations))
            self.taken[number, env] = tokens
        results = [env.step(token) for env, token in zip(self.envs, tokens.tolist())]
        self.observations = np.stack([result[0] for result in results])
        self.returns += [result[1] for result in results]
        return torch.tensor([result[2] for result in results])

    def rewards(self, completion_ids, **columns):
        """TRL's reward function: the returns that the environments gave for these completions."""
        if completion_ids != [env.unwrapped.completion for env in self.envs]:
            raise RuntimeError("TRL asks for rewards of other completions than those that it generated")
        return self.returns.tolist()

    def learned(self, observations, tokens):
        """Report the batch that goes into the loss, by the stamps that came with it."""
        if not self.stamping:
            return
        # A copy: TRL keeps the batch, and learns from it in every epoch.
        rows = observations.reshape(-1, self.dim).copy()
        env, number = decode(self.layout, extract(self.layout, self.dim, rows))
        genuine = (env < self.taken.shape[1]) & (number < len(self.taken))
        genuine[genuine] = self.taken[number[genuine], env[genuine]] == tokens.reshape(-1)[genuine]
        rows.view(np.uint8)[~genuine] = 0xFF
        self.probe.learned(rows)


class Trainer(GRPOTrainer):
    """Lets the stamped observations travel with the batch, and reports those that arrive in the loss."""

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        return {**batch, "stamped": torch.from_numpy(np.stack(self.model.walk.history, 1))}

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        self.model.walk.learned(inputs["stamped"].numpy(), inputs["completion_ids"].numpy())
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)


class Watch(TrainerCallback):
    """Reports each optimizer step; ends training between two rollouts when the budget is used up."""

    def __init__(self, probe, weights, steps_per_rollout):
        self.probe, self.weights, self.steps_per_rollout = probe, weights, steps_per_rollout

    def on_optimizer_step(self, args, state, control, optimizer=None, **kwargs):
        self.probe.updated(self.weights, optimizer.param_groups[0]["lr"])

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.steps_per_rollout == 0 and self.probe.should_stop():
            control.should_training_stop = True


def _config(trial, plain, tokenizer):
    """A transformer as wide as the scenario's first hidden layer, with as many blocks as it has layers."""
    return GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=2 * plain.length,
        n_embd=trial.net_arch[0],
        n_layer=len(trial.net_arch),
        n_head=HEADS,
        activation_function=trial.activation,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def _tokenizer(vocabulary):
    """One word per token of the environment, and two that it does not have: TRL must have them, none is generated."""
    words = {str(token): token for token in range(vocabulary)}
    words.update({"[PAD]": vocabulary, "[EOS]": vocabulary + 1})
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", eos_token="[EOS]", padding_side="left"
    )


def _prompts(plain, seed, count):
    """Draw ``count`` prompts as the environment draws them."""
    plain.reset(seed=seed)
    prompts = []
    for _ in range(count):
        plain.reset()
        prompts.append(" ".join(map(str, plain.prompt)))
    return Dataset.from_dict({"prompt": prompts})


def _greedy(model, plain):
    def policy(observation):
        prompt, completion = tokens_of(observation, plain.length, plain.vocabulary)
        with torch.no_grad():
            logits = model(torch.tensor([prompt + completion])).logits
        return int(logits[0, -1, : plain.vocabulary].argmax())

    return policy
