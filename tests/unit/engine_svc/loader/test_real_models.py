"""The real model, as a GGUF file and as the checkpoint made from it."""

from __future__ import annotations

import hashlib

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.initialization import no_init_weights

from engine_svc.loader.open_model import open_model
from engine_svc.models.llama import LLAMA
from tests.support.make_checkpoint import hf_weights
from tests.support.run_decoder import reference_logits
from tests.support.stored_tensors import values

# Of the checkpoint that the benchmarks' own converter makes, over sorted names and their bytes.
CHECKPOINT_SHA256 = "08587497151051bb64ba4ae8288856623bb8c6cd5dc22bb3bda06ebda07a1bcd"


def test_the_checkpoint_is_the_one_that_another_converter_makes(smollm2_checkpoint):
    weights = load_file(smollm2_checkpoint / "model.safetensors")

    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].view(torch.uint8).numpy().tobytes())

    assert digest.hexdigest() == CHECKPOINT_SHA256


def test_file_and_checkpoint_are_the_same_model(smollm2_gguf, smollm2_checkpoint):
    packaged, checkpoint = open_model(smollm2_gguf), open_model(smollm2_checkpoint)

    assert packaged.spec == checkpoint.spec
    assert packaged.eos_token_ids == checkpoint.eos_token_ids
    assert packaged.num_parameters == checkpoint.num_parameters == 134_515_008
    assert packaged.format == "GGUF, Q4_1"
    assert packaged.notices == checkpoint.notices == ()
    for name in packaged.spec.weight_shapes():
        rounded = values(packaged.source.load(name)).to(torch.bfloat16)
        assert torch.equal(rounded.float(), values(checkpoint.source.load(name))), name


def test_the_file_gives_the_logits_of_its_dequantised_weights(smollm2_gguf, smollm2_checkpoint):
    opened = open_model(smollm2_gguf)
    config = AutoConfig.from_pretrained(smollm2_checkpoint)
    with no_init_weights():  # all are the file's
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    model.load_state_dict(hf_weights(opened, LLAMA), strict=False)
    model.tie_weights()  # the head is the embedding
    prompt = list(range(1000, 1048))

    (ours,) = reference_logits(opened, [prompt])

    with torch.inference_mode():
        theirs = model(torch.tensor([prompt])).logits[0]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-3)
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))
