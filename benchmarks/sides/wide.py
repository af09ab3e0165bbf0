"""A model in wider matrices: the same function, so that what trains it goes the same way."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import pad

WIDTHS = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
OF_A_HEAD = ("q_norm.weight", "k_norm.weight")


def widen(source: Path, target: Path, times: int) -> None:
    """Writes the Qwen3 in folder `source` with `times` the hidden size, heads and MLP: filled up
    with zeros, which no gradient reaches. It says the same, but for rounding and the small number
    in the norms of heads, and takes as long as any other model of its size.
    """
    shutil.copytree(source, target, dirs_exist_ok=True)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config |= {name: times * config[name] for name in WIDTHS}
    config["rms_norm_eps"] /= times
    (target / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    weights = load_file(source / "model.safetensors")
    wide = {name: _widened(name, tensor, times) for name, tensor in weights.items()}
    save_file(wide, target / "model.safetensors", metadata={"format": "pt"})


def _widened(name: str, tensor: Tensor, times: int) -> Tensor:
    if name.endswith(OF_A_HEAD):
        return tensor
    columns = (times - 1) * tensor.shape[-1]
    if tensor.dim() == 1:  # the mean square is over `times` as many numbers
        return pad(tensor / math.sqrt(times), (0, columns))
    rows = 0 if "embed_tokens" in name else (times - 1) * tensor.shape[0]
    return pad(tensor, (0, columns, 0, rows))
