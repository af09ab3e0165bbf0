"""What sources call the same quantity."""

from __future__ import annotations

ALIASES = {
    "iteration_time": "step_time",
    "iter_time": "step_time",
    "time_per_step": "step_time",
    "seconds_per_step": "step_time",
    "s_per_step": "step_time",
    "train_step_time": "step_time",
    "training_step_time": "step_time",
    "train_step_timing": "step_time",
    "step_time_ms": "step_time",
    "iteration_time_ms": "step_time",
    "mfu": "mfu",
    "hfu": "hfu",
    "model_flops_utilization": "mfu",
    "time_per_iteration": "step_time",
    "total_step_time": "step_time",
    "throughput": "tokens_per_s",
    "tgs": "tokens_per_s_per_gpu",
    "tokens_per_gpu_per_s": "tokens_per_s_per_gpu",
    "sequences_per_s": "samples_per_s",
    "tps_per_gpu": "tokens_per_s_per_gpu",
    "tok_per_s_per_gpu": "tokens_per_s_per_gpu",
    "tokens_per_s_per_device": "tokens_per_s_per_gpu",
    "tflops": "model_tflops_per_gpu",
    "tflops_per_device": "model_tflops_per_gpu",
    "tflops_per_s_per_gpu": "model_tflops_per_gpu",
    "achieved_tflops_per_gpu": "model_tflops_per_gpu",
    "tflops_per_gpu": "model_tflops_per_gpu",
    "output_throughput": "output_tokens_per_s",
    "throughput_tok_per_s": "output_tokens_per_s",
    "generation_throughput": "output_tokens_per_s",
    "total_throughput": "total_tokens_per_s",
    "total_token_throughput": "total_tokens_per_s",
    "ttft": "first_token_latency",
    "time_to_first_token": "first_token_latency",
    "latency": "end_to_end_latency",
    "avg_latency": "end_to_end_latency",
    "avg_latency_ms": "end_to_end_latency",
    "mean_latency": "end_to_end_latency",
    "mean_latency_ms": "end_to_end_latency",
    "median_latency": "end_to_end_latency",
    "p50_latency": "end_to_end_latency",
    "p50_latency_ms": "end_to_end_latency",
    "e2e_latency": "end_to_end_latency",
    "tpot": "time_per_output_token",
    "tpot_ms_per_tok": "time_per_output_token",
    "itl": "time_per_output_token",
    "max_memory_allocated": "peak_allocated",
    "peak_memory_allocated": "peak_allocated",
    "memory": "peak_memory",
    "peak_memory_gb": "peak_memory",
    "peak_memory_gib": "peak_memory",
    "max_memory": "peak_memory",
    "peak_mem": "peak_memory",
    "max_allocated": "peak_allocated",
}
"""Names of a quantity, and the one that predictions go by."""

RATES = ("tokens_per_s", "output_tokens_per_s", "total_tokens_per_s")


def common(name: str, unit: str) -> str:
    """The name that predictions go by; a unit of each GPU makes a rate one of each GPU."""
    short = name.replace("_per_second", "_per_s").replace("_per_sec", "_per_s")
    short = short.removesuffix("_s") if short.endswith("time_s") else short
    short = ALIASES.get(short.lower(), short)
    each = "/gpu" in unit.lower() or "per gpu" in unit.lower()
    return f"{short}_per_gpu" if each and short in RATES else short
