"""Adapters as PEFT makes them: its greedy answers beside the engine's, token by token.

    pip install peft transformers
    python -m tests.bench.peft_agreement MODEL [ENGINE FLAGS]

Three adapters of a Hugging Face directory are made with random weights that change answers a good
deal: of two matrices a layer, of all of them by rank-stabilised scale, and with ranks and scales of
their own. PEFT answers in float32 with transformers; the engine as its flags say, bfloat16 by
default, with all adapters loaded and all prompts at once.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table

from tests.support.constrained import engine_process, request

ADAPTERS: dict[str, dict[str, Any]] = {
    "two-matrices": {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]},
    "all-matrices": {"r": 16, "lora_alpha": 32, "target_modules": "all-linear", "use_rslora": True},
    "patterns": {
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["down_proj", "up_proj"],
        "rank_pattern": {"layers.3.mlp.down_proj": 6},
        "alpha_pattern": {"layers.3.mlp.down_proj": 30},
    },
}
PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):",
    "Once upon a time",
    "The three laws of motion are",
    "Dear Sir or Madam,",
    "1, 1, 2, 3, 5, 8,",
)
NUM_TOKENS = 32
_STD = 0.02  # of B, which PEFT begins as zeros


def by_peft(model: Path, into: Path, prompts: list[list[int]]) -> dict[str, list[list[int]]]:
    """Saves each adapter; its answers, stop tokens included."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    answers = {}
    for seed, (name, options) in enumerate(ADAPTERS.items()):
        torch.manual_seed(seed)
        base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        adapted = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **options)).eval()
        for key, weight in adapted.named_parameters():
            if "lora_B" in key:
                torch.nn.init.normal_(weight, std=_STD)
        adapted.save_pretrained(into / name)
        answers[name] = [
            adapted.generate(
                input_ids=torch.tensor([prompt]), max_new_tokens=NUM_TOKENS, do_sample=False
            )[0, len(prompt) :].tolist()
            for prompt in prompts
        ]
    return answers


def by_engine(stub: Any, adapter: str, prompt: list[int]) -> list[int]:
    """One greedy answer."""
    message = request(prompt, temperature=0.0, max_tokens=NUM_TOKENS, lora=adapter)
    deltas = (event.delta for event in stub.Generate(message) if event.HasField("delta"))
    return [token_id for delta in deltas for token_id in delta.token_ids]


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def main(model: Path, flags: tuple[str, ...]) -> None:
    """Measures and prints a table."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    prompts = [tokenizer(text).input_ids for text in PROMPTS]
    with TemporaryDirectory() as directory:
        expected = by_peft(model, Path(directory), prompts)
        modules = [f"--lora-modules={name}={directory}/{name}" for name in ADAPTERS]
        asked = list(itertools.product(ADAPTERS, range(len(prompts))))
        with (
            engine_process(model, "--enable-lora", *modules, *flags) as stub,
            ThreadPoolExecutor(len(asked)) as pool,
        ):
            given = list(pool.map(lambda one: by_engine(stub, one[0], prompts[one[1]]), asked))
    table = Table(title=f"{model.name}: greedy answers of {NUM_TOKENS} tokens")
    for heading in ("Adapter", "Equal answers", "Equal tokens before the first difference"):
        table.add_column(heading, justify="left" if heading == "Adapter" else "right")
    for name in ADAPTERS:
        pairs = [
            (expected[name][i], answer)
            for (adapter, i), answer in zip(asked, given, strict=True)
            if adapter == name
        ]
        equal = sum(first == second for first, second in pairs)
        same = sum(_common(first, second) for first, second in pairs)
        total = sum(len(first) for first, _ in pairs)
        table.add_row(name, f"{equal} of {len(pairs)}", f"{same} of {total}")
    Console().print(table)


def _common(first: list[int], second: list[int]) -> int:
    """Tokens until two answers differ."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


if __name__ == "__main__":
    main()
