"""TRL's side, in its own environment: GRPOTrainer set up for a CPU as its users would.

python trl_side.py JOB FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from job import CLIP_GRADIENT, LEARNING_RATE, Job, reward, write_model
from stopwatch import Stopwatch, Turns
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

END = 1


def main(job: Job, folder: Path) -> None:
    """Runs steps as they are asked for."""
    watch = Stopwatch()
    turns = Turns(watch)
    model_folder = write_model(folder / "model", end=END)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(model_folder),
        dtype=torch.bfloat16 if job.dtype == "bf16-pure" else torch.float32,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=rewards,
        args=settings(job, folder),
        train_dataset=Dataset.from_list([{"prompt": text} for text in job.texts()]),
        processing_class=AutoTokenizer.from_pretrained(model_folder),
        callbacks=[InTurns(watch, turns)],
    )
    observe(watch, trainer)
    trainer.train()


def settings(job: Job, folder: Path) -> GRPOConfig:
    """One batch of everything, one optimizer step, no reference model, nothing saved or logged.

    Gradient checkpointing, TRL's default, would only cost time here.
    """
    return GRPOConfig(
        output_dir=str(folder / "out"),
        use_cpu=True,
        bf16=job.dtype == "bf16",
        per_device_train_batch_size=job.prompts * job.completions,
        num_generations=job.completions,
        max_completion_length=job.tokens,
        generation_kwargs={"min_new_tokens": job.tokens},
        temperature=1.0,
        beta=0.0,
        max_steps=job.steps,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        max_grad_norm=CLIP_GRADIENT,
        optim="adamw_torch_fused",
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )


def rewards(completions: list[str], **_: Any) -> list[float]:
    """The job's reward of each completion."""
    return [reward(text) for text in completions]


class InTurns(TrainerCallback):
    """Waits for its turn before each step, answers after it."""

    def __init__(self, watch: Stopwatch, turns: Turns) -> None:
        self._watch = watch
        self._turns = turns
        self._started = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """The optimizer is made only now."""
        for name in ("step", "zero_grad"):
            self._watch.watch(parts["optimizer"], name, "optimizer")

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """The step before has ended."""
        if self._started:
            self._turns.answer()
        self._turns.wait()
        self._started = True

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """The last step has ended."""
        self._turns.answer()


def observe(watch: Stopwatch, trainer: GRPOTrainer) -> None:
    """Counts the stages where the trainer goes through them."""
    watch.watch(trainer, "_generate", "decode")
    watch.watch(trainer, "_calculate_rewards", "reward")
    watch.watch(trainer, "_compute_loss", "forward")
    watch.watch(trainer.accelerator, "backward", "backward")
    watch.watch(trainer.accelerator, "clip_grad_norm_", "optimizer")


if __name__ == "__main__":
    main(Job.read(sys.argv[1]), Path(sys.argv[2]))
