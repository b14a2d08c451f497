"""LoRA adapters through whole engines: what they answer, beside whom, and after what.

The truth is the same model with W + scale·B·A in place of each W.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import grpc
import numpy as np
import pytest
import torch
from octavo.engine.v1 import admin_pb2, admin_pb2_grpc
from octavo.engine.v1 import engine_pb2 as pb

from engine_svc.loader.open_model import open_model
from engine_svc.models.errors import ModelError
from engine_svc.sampling_params import SamplingParams
from engine_svc.scheduling.request import Request
from tests.support.engine_process import engine_process
from tests.support.peft_files import peft_config, peft_tensors, write_peft
from tests.support.run_engine import load
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.tiny_models import make_tokenizer, tiny_model

EXACT = ("--dtype", "float32", "--threads", "1")
KERNELS = ("--dtype", "bfloat16", "--threads", "1")  # those of C++
GUESSES = (
    '--speculative-config={"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":3,'
    '"prompt_lookup_min":1}'
)
PROMPTS = [[3, 5, 7, 11, 13], list(range(20, 60)), [9, 8, 7, 6, 5, 4, 3] * 3]
RANKS = {"a": 4, "b": 8, "c": 16}
NUM_TOKENS = 12
keys = itertools.count()


class Made:
    """A tiny model and adapters of it, as files."""

    def __init__(self, root: Path, family: str = "llama", dtype: torch.dtype = torch.float32):
        self.root = root
        self.model = tiny_model(family).to(dtype)
        self.path = self.save(self.model, root / "model")

    def save(self, model, path: Path) -> Path:
        model.save_pretrained(path)
        make_tokenizer().save_pretrained(path)
        return path

    def adapter(self, name: str, seed: int | None = None) -> Path:
        """Writes an adapter; its scale is 2."""
        return write_peft(self.root / name, self.tensors(name, seed), peft_config(rank=RANKS[name]))

    def tensors(self, name: str, seed: int | None = None):
        spec = open_model(self.path).spec
        seed = ord(name) if seed is None else seed
        return peft_tensors(spec, rank=RANKS[name], seed=seed, std=0.15)

    def merged(self, name: str) -> Path:
        """The model with an adapter added to its weights."""
        tensors = self.tensors(name)
        weights = dict(self.model.named_parameters())
        with torch.no_grad():
            for module in {key.rpartition(".lora_")[0] for key in tensors}:
                low, high = (tensors[f"{module}.lora_{side}.weight"] for side in "AB")
                weight = weights[f"{module.removeprefix('base_model.model.')}.weight"]
                weight.add_(2 * torch.from_numpy(high @ low))
        return self.save(self.model, self.root / f"merged_{name}")


def modules(*adapters: Path) -> list[str]:
    return ["--enable-lora", *(f"--lora-modules={path.name}={path}" for path in adapters)]


def answers(engine, asked):
    """Tokens with their log-probabilities of (prompt, adapter) pairs that run together."""
    loaded = [] if engine.adapters is None else engine.adapters.loaded
    slots = {adapter.name: slot for slot, adapter in enumerate(loaded)}
    sampling = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, logprobs=0)
    requests = []
    for prompt, name in asked:
        slot = slots[name] if name else -1
        version = loaded[slot].version if name else ""
        key = next(keys)
        requests.append(
            Request(key, "r", 0, tuple(prompt), sampling, 0.0, lora=version, adapter_slot=slot)
        )
        engine.scheduler.add(requests[-1])
    found = {request.key: [] for request in requests}
    while (batch := engine.scheduler.schedule()) is not None:
        outputs = engine.scheduler.update(batch, engine.executor.submit(batch), 0.0)
        for token in outputs.tokens:
            found[token.key].append((token.token_id, token.logprobs.logprob))
    engine.scheduler.check_integrity()
    return [found[request.key] for request in requests]


def tokens_of(answer):
    return [token for token, _ in answer]


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_an_adapter_answers_as_the_model_with_its_weights_added(family, tmp_path):
    made = Made(tmp_path, family)
    engine = load(made.path, *EXACT, *modules(made.adapter("a")))
    adapted = answers(engine, [(prompt, "a") for prompt in PROMPTS])
    plain = answers(engine, [(prompt, "") for prompt in PROMPTS])

    merged = answers(load(made.merged("a"), *EXACT), [(prompt, "") for prompt in PROMPTS])

    for answer, truth, without in zip(adapted, merged, plain, strict=True):
        assert tokens_of(answer) == tokens_of(truth) != tokens_of(without)
        np.testing.assert_allclose(*([p for _, p in a] for a in (answer, truth)), atol=2e-4)


def test_kernels_agree_with_the_model_with_its_weights_added(tmp_path):
    made = Made(tmp_path, dtype=torch.bfloat16)
    engine = load(made.path, *KERNELS, *modules(made.adapter("a")))
    adapted = answers(engine, [(prompt, "a") for prompt in PROMPTS])
    made.model = made.model.float()

    exact = load(made.merged("a"), *EXACT)

    for prompt, answer in zip(PROMPTS, adapted, strict=True):
        rows = prompt_logprobs(exact, [*prompt, *tokens_of(answer)])[-len(answer) :]
        np.testing.assert_allclose([p for _, p in answer], rows, atol=0.1)


def prompt_logprobs(engine, token_ids):
    """Log-probabilities of all tokens of a text but the first."""
    sampling = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
    engine.scheduler.add(Request(next(keys), "r", 0, tuple(token_ids), sampling, 0.0))
    found = []
    while (batch := engine.scheduler.schedule()) is not None:
        outputs = engine.scheduler.update(batch, engine.executor.submit(batch), 0.0)
        found += [entry.logprob for part in outputs.prompt_logprobs for entry in part.entries]
    return found[1:]


@pytest.mark.parametrize("flags", [EXACT, KERNELS])
def test_nobody_s_answer_depends_on_whose_adapters_are_beside_it(flags, tmp_path):
    made = Made(tmp_path)
    paths = [made.adapter(name) for name in RANKS]
    asked = [(prompt, name) for prompt in PROMPTS for name in ("", "a", "b", "c")]
    without = answers(load(made.path, *flags), [(prompt, "") for prompt in PROMPTS])
    engine = load(made.path, *flags, "--no-enable-prefix-caching", *modules(*paths))

    together = answers(engine, asked)

    assert together[::4] == without
    assert together == [answers(engine, [each])[0] for each in asked]
    assert len({tuple(tokens_of(answer)) for answer in together}) == len(asked)


def test_guesses_and_chunks_change_no_answer_of_an_adapter(tmp_path):
    made = Made(tmp_path)
    flags = (*KERNELS, *modules(made.adapter("a"), made.adapter("b")))
    asked = [(prompt * 2, name) for prompt in PROMPTS for name in ("a", "b")]
    wanted = answers(load(made.path, *flags), asked)

    engine = load(made.path, *flags, "--max-num-batched-tokens=32", GUESSES)

    assert answers(engine, asked) == wanted
    assert answers(engine, asked) == wanted  # their prompts are cached by now


def test_a_gguf_model_takes_the_same_adapters(tmp_path):
    made = Made(tmp_path)
    flags = (*EXACT, *modules(made.adapter("a")))
    asked = [(prompt, "a") for prompt in PROMPTS]

    gguf = load(write_tiny_gguf(made.model, tmp_path / "tiny.gguf"), *flags)

    assert answers(gguf, asked) == answers(load(made.path, *flags), asked)


def test_an_adapter_that_cannot_be_used_stops_the_start(tmp_path):
    made = Made(tmp_path)
    path = made.adapter("a")
    write_peft(path, made.tensors("a"), peft_config(rank=4, use_dora=True))

    with pytest.raises(ModelError, match=f"--lora-modules a={path}: adapter_config.json: use_dora"):
        load(made.path, *KERNELS, *modules(path))


def test_memory_for_all_slots_is_kept_from_the_start(tmp_path):
    made = Made(tmp_path)
    path = made.adapter("c")

    engine = load(made.path, *KERNELS, "--max-loras=3", *modules(path))

    summary = engine.model_info.summary
    assert any("for adapters" in line for line in summary)
    assert "adapters: up to 3 of rank 16 at most" in summary
    assert any(line.startswith("adapter c: rank 16, version ") for line in summary)


def test_an_engine_loads_and_unloads_while_it_runs(tmp_path):
    """Over a socket, with the kernels: no answer is left of an adapter that is gone."""
    made = Made(tmp_path)
    made.adapter("a")
    flags = ("--enable-lora", f"--lora-dir={tmp_path}", "--max-loras=1", *KERNELS)
    with engine_process(made.path, tmp_path, *flags) as engine:
        engine.wait_ready()
        plain = said(engine, "")
        with grpc.insecure_channel(f"unix:{tmp_path / 'engine.sock'}") as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            first = put(admin, "a")
            before = said(engine, "a")
            admin.UnloadAdapter(admin_pb2.UnloadAdapterRequest(name="a"))

            with pytest.raises(grpc.RpcError) as error:
                said(engine, "a")
            assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT

            made.adapter("a", seed=7)
            second = put(admin, "a")
            after = said(engine, "a")
        assert first.version != second.version
        assert len({plain, before, after}) == 3
        assert said(engine, "") == plain


def put(admin, name):
    asked = admin_pb2.LoadAdapterRequest(name=name, source=name)
    return admin.LoadAdapter(asked).adapter


def said(engine, name):
    """The tokens of a greedy answer that fills several blocks."""
    call = engine.stub.Generate(
        pb.GenerateRequest(
            prompt_token_ids=PROMPTS[1],
            lora=name,
            sampling=pb.SamplingParams(temperature=0.0),
            stopping=pb.StoppingParams(max_tokens=NUM_TOKENS, ignore_eos=True),
        )
    )
    return tuple(token for event in call for token in event.delta.token_ids)
