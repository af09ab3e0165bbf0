"""A model of a few thousand weights, rows for it, and pipelines around them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from rpeg.frontend import load

DIGITS = Path(__file__).parents[3] / "models" / "tiny-qwen3-digits"


FAMILIES: dict[str, dict[str, object]] = {
    "qwen2": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    "qwen3": {},
    "llama": {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "tie_word_embeddings": False,
    },
}
"""By family, what its configuration changes of the digits' one."""


def write_model(folder: Path, **changes: object) -> Path:
    """A model folder without weights: that of the digits, made smaller, with `changes`."""
    folder.mkdir()
    config = json.loads((DIGITS / "config.json").read_text())
    config |= {"hidden_size": 16, "head_dim": 8, "intermediate_size": 24}
    # Fresh weights of this spread give gradients that no rounding hides.
    config |= {"num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.3}
    (folder / "config.json").write_text(json.dumps(config | changes))
    shutil.copy(DIGITS / "tokenizer.json", folder)
    shutil.copy(DIGITS / "tokenizer_config.json", folder)
    return folder


def write_rows(path: Path) -> None:
    """Twelve prompts of three lengths, which are demonstrations too."""
    rows = [
        {"prompt": f"{'7' * (k % 3)}{k % 10}=", "answer": str(k % 10), "completion": f"{k % 10}5"}
        for k in range(12)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_pairs(path: Path) -> None:
    """Twelve prompts of three lengths, each with two responses of other lengths."""
    rows = [
        {"prompt": f"{'7' * (k % 3)}{k % 10}=", "chosen": f"{k % 10}5{'3' * (k % 4)}"}
        | {"rejected": f"{(k + 3) % 10}"}
        for k in range(12)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def parse(step: str, *, optim: str = "adamw(lr=3e-3)", more: str = "", steps: int = 5) -> ModuleOp:
    """A module with one pipeline `p` whose step is `step`."""
    text = f"""rpeg 0.1
pipeline p {{
  model actor = policy("tiny", dtype=fp32, optim={optim})
  {more}
  step i < {steps} {{
{step}
  }}
}}
"""
    loaded = load(text, "p.rpeg")
    assert loaded.module is not None, "\n".join(str(d) for d in loaded.diagnostics)
    return loaded.module


GRPO = """
    q = batch(train, size=4)
    y, lp = generate(actor@i, q, n=4, max_tokens=6, dtype=fp32)
    short = score(brief, y)
    r = weighted_sum(short, weights=[1.0])
    adv = group_advantage(r, baseline=mean, scale=std)
    lp_old = logprob(actor@i, y)
    lp_ref = logprob(ref, y)
    pg = ppo_clip(y, adv, lp_old, clip_low=0.2, clip_high=0.2)
    kl = kl_loss(y, lp_ref, coef={coef})
    actor@i+1 = update(actor@i, pg, kl, agg={agg}, epochs={epochs}, minibatches={minibatches})
"""
THINGS = """
  model ref = policy(actor@0, dtype=fp32)
  data train = prompts("rows.jsonl")
  verifier brief = outcome("rule:overlong", soft=0, max=6)
  verifier long = outcome("rule:overlong", soft=2, max=4)
"""


def grpo(
    *changes: tuple[str, str],
    coef: float = 0.5,
    agg: str = "token_mean",
    epochs: int = 1,
    minibatches: int = 2,
) -> ModuleOp:
    """GRPO with a KL term, whose reward falls with the length; each (old, new) text replaced."""
    step = GRPO.format(coef=coef, agg=agg, epochs=epochs, minibatches=minibatches)
    for old, new in changes:
        assert old in step, old
        step = step.replace(old, new)
    return parse(step, more=THINGS)
