"""Measures OpenVINO GenAI in its own environment: one JSON line in, one out.

    python openvino_runner.py MODEL_DIR THREADS
    in    {"prompts": [[token, …], …], "concurrency": 8, "max_tokens": 128}
    out   [{"started", "arrivals", "ended", "prompt_tokens", "completion_tokens"}, …]

The first line out is {} once the model is loaded. It has no server, so its times bear neither HTTP
nor a tokeniser nor a client. Needs openvino-genai and numpy, and nothing of Octavo.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import openvino
import openvino_genai


def load(model_dir: str, threads: int) -> Any:
    """The pipeline with continuous batching and prefix caching."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = 4  # GB
    scheduler.max_num_seqs = 32
    scheduler.max_num_batched_tokens = 256
    scheduler.enable_prefix_caching = True
    properties = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    return openvino_genai.ContinuousBatchingPipeline(model_dir, scheduler, "CPU", properties)


def run(pipeline: Any, task: dict[str, Any]) -> list[dict[str, Any]]:
    """A closed loop over the prompts, greedy, of a fixed length."""
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = task["max_tokens"]
    config.ignore_eos = True
    config.do_sample = False
    waiting = list(enumerate(task["prompts"]))[::-1]
    running: dict[int, tuple[Any, dict[str, Any]]] = {}
    samples = []
    while waiting or running:
        while waiting and len(running) < task["concurrency"]:
            number, ids = waiting.pop()
            sample: dict[str, Any] = {
                "started": time.perf_counter(),
                "arrivals": [],
                "prompt_tokens": len(ids),
                "completion_tokens": 0,
            }
            tokens = openvino.Tensor(np.array([ids], dtype=np.int64))
            running[number] = pipeline.add_request(number, tokens, config), sample
        pipeline.step()
        now = time.perf_counter()
        for number, (handle, sample) in list(running.items()):
            if handle.can_read():
                parts = handle.read().values()
                sample["completion_tokens"] += sum(len(part.generated_ids) for part in parts)
                sample["arrivals"].append(now)
            if sample["completion_tokens"] >= task["max_tokens"]:
                sample["ended"] = now
                samples.append(sample)
                del running[number]
    return samples


def main() -> None:
    """Serves tasks until standard input ends."""
    pipeline = load(sys.argv[1], int(sys.argv[2]))
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(pipeline, json.loads(line))) + "\n")
        sys.stdout.flush()


main()
