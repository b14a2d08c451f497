"""Quantised checkpoints are read to the bit as their writer meant them, or refused by name."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import numpy as np
import orjson
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine_svc.loader.open_model import open_model
from engine_svc.loader.quantized.config import read_quantization
from engine_svc.loader.quantized.fp8 import Fp8Linear
from engine_svc.loader.quantized.linear import Part
from engine_svc.loader.quantized.packed_words import GptqLinear
from engine_svc.loader.quantized.signed_bytes import IntLinear, PackedLinear
from engine_svc.models.errors import ModelError
from engine_svc.models.family import layer_names
from engine_svc.models.qwen2 import QWEN2
from tests.support import quantized_checkpoints as written
from tests.support.quantized_checkpoints import quantize_checkpoint
from tests.support.tiny_models import make_tiny

LAYOUTS = {
    "awq": (written.awq(), "UINT4"),
    "awq, a group for each output": (written.awq(-1), "UINT4"),
    "awq, groups of 16": (written.awq(16), "UINT4 with scattered scales"),
    "gptq": (written.gptq(), "INT4"),
    "gptq without g_idx": (written.gptq(with_g_idx=False), "INT4"),
    "gptq, asymmetric": (written.gptq(sym=False), "UINT4"),
    "gptq version 2, asymmetric": (written.gptq(sym=False, version=2), "UINT4"),
    "gptq, act order": (written.gptq(desc_act=True), "INT4 with scattered scales"),
    "gptq, act order in one group": (written.gptq(-1, desc_act=True), "INT4"),
    "gptq, 8 bit": (written.gptq(bits=8), "INT8"),
    "gptq, 8 bit, asymmetric": (written.gptq(bits=8, sym=False), "UINT8"),
    "fp8": (written.fp8(), "F8_E4M3"),
    "fp8 as transformers names it": (written.fp8(scale_name="weight_scale_inv"), "F8_E4M3"),
    "fp8, blocks": (written.fp8((48, 40)), "F8_E4M3 with scattered scales"),
    "compressed words": (written.compressed_words(), "INT4"),
    "compressed words, asymmetric": (written.compressed_words(symmetric=False), "UINT4"),
    "compressed words, channels": (written.compressed_words(-1), "INT4"),
    "compressed words, act order": (
        written.compressed_words(act_order=True),
        "INT4 with scattered scales",
    ),
    "compressed words, 8 bit": (written.compressed_words(bits=8), "INT8"),
    "compressed int8": (written.compressed_int8(), "INT8"),
    "compressed int8, asymmetric": (written.compressed_int8(symmetric=False), "UINT8"),
    "compressed fp8": (written.compressed_fp8(), "F8_E4M3"),
}
GATE = "model.layers.0.mlp.gate_proj"


@pytest.fixture(scope="module")
def dense(tmp_path_factory) -> Path:
    """A Qwen2, for its biases, as small as can be."""
    return make_tiny("qwen2", tmp_path_factory.mktemp("dense") / "model", num_hidden_layers=1)


@pytest.fixture(scope="module")
def once(dense, tmp_path_factory):
    """Writes a layout of LAYOUTS when it is first asked for; returns where, and what it means."""
    root = tmp_path_factory.mktemp("quantised")

    @cache
    def write(name):
        out = root / str(list(LAYOUTS).index(name))
        return out, quantize_checkpoint(dense, out, LAYOUTS[name][0])

    return write


@pytest.fixture
def copied(once, tmp_path):
    """The same as a copy of the test's own."""
    return lambda name: Path(shutil.copytree(once(name)[0], tmp_path / "model"))


def edit_config(directory: Path, **changes) -> None:
    """Sets keys of quantization_config; one given as ... is taken out."""
    path = directory / "config.json"
    config = orjson.loads(path.read_bytes())
    values = config["quantization_config"] | changes
    config["quantization_config"] = {k: v for k, v in values.items() if v is not ...}
    path.write_bytes(orjson.dumps(config))


def edit_tensors(directory: Path, change) -> None:
    """Lets `change` alter the tensors of the checkpoint."""
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def names_in_files(spec) -> dict[str, str]:
    names = {
        "embed": "model.embed_tokens.weight",
        "final_norm": "model.norm.weight",
        "lm_head": "lm_head.weight",
    }
    return names | layer_names(spec, "model.layers.", QWEN2.hf_layer_names)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_weight_is_what_its_writer_meant(name, once):
    layout, scheme = LAYOUTS[name]
    path, meant = once(name)

    opened = open_model(path)

    names = names_in_files(opened.spec)
    for weight in opened.spec.weight_shapes():
        found = opened.source.load(weight).to_float32()
        assert np.array_equal(found, meant[names[weight]].numpy()), weight
    gate = opened.source.load("layers.0.gate")
    cut = [gate.rows(start, stop).to_float32() for start, stop in ((0, 3), (3, 64), (64, 96))]
    assert np.array_equal(np.concatenate(cut), gate.to_float32())
    assert opened.source.scheme("layers.0.q") == scheme
    assert opened.source.scheme("embed") == "F32"
    assert opened.quantization == layout.config["quant_method"]


@pytest.mark.parametrize("bits", [4, 8])
def test_zero_points_of_gptq_version_1_borrow_from_their_neighbours(bits):
    positive = torch.rand(64, 64)  # whose zero points are 0, which less one is none
    positive[::3] -= 0.5
    matrix = written.gptq(bits=bits, sym=False).write(positive)
    parts = {
        name: Part(dtype, tuple(matrix.tensors[name].shape), bytes_of(matrix.tensors[name]))
        for name, dtype in (("qweight", "I32"), ("qzeros", "I32"), ("scales", "F16"))
    }

    linear = GptqLinear(bits, 32, symmetric=False, act_order=False, zeros_less_one=True)
    found = linear.rows(parts, (64, 64), 8, 64).to_float32()

    assert np.array_equal(found, matrix.meant[8:].numpy())


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy()


def test_a_head_may_be_quantised_too(tmp_path):
    dense = make_tiny("qwen2", tmp_path / "dense", num_hidden_layers=1, vocab_size=320)
    meant = quantize_checkpoint(dense, tmp_path / "model", written.gptq(head=True))

    source = open_model(tmp_path / "model").source

    assert source.scheme("lm_head") == "INT4"
    head = source.load("lm_head").to_float32()
    assert np.array_equal(head, meant["lm_head.weight"].numpy())


def test_groups_of_compressed_tensors_are_found_by_name_then_pattern_then_class():
    def group(bits: int, *targets: str):
        weights = {"num_bits": bits, "type": "int", "strategy": "channel", "symmetric": True}
        return {"targets": list(targets), "weights": weights}

    quantization = read_quantization(
        {
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "ignore": ["re:.*layers\\.1\\..*"],
                "config_groups": {
                    "a": group(4, "Linear"),
                    "b": group(8, "re:.*down_proj") | {"format": "int-quantized"},
                    "c": group(8, "model.layers.0.mlp.down_proj"),
                },
            }
        }
    )

    assert quantization.format_for("model.layers.2.mlp.up_proj") == PackedLinear(4, -1, True, False)
    assert quantization.format_for("model.layers.2.mlp.down_proj") == IntLinear(-1, True)
    assert quantization.format_for("model.layers.0.mlp.down_proj") == PackedLinear(
        8, -1, True, False
    )
    assert quantization.expected("model.layers.1.mlp.up_proj", is_head=False) is None


def test_a_symmetric_gptq_may_say_version_1_and_store_version_2(dense, tmp_path):
    meant = quantize_checkpoint(dense, tmp_path / "model", written.gptq(version=2))
    edit_config(tmp_path / "model", checkpoint_format="gptq")

    gate = open_model(tmp_path / "model").source.load("layers.0.gate")

    assert np.array_equal(gate.to_float32(), meant[f"{GATE}.weight"].numpy())


@pytest.mark.parametrize("layout", [written.awq(ignored=("o_proj",)),
                                    written.compressed_words(ignored=("o_proj",))])  # fmt: skip
def test_modules_that_are_left_alone_are_dense(layout, dense, tmp_path):
    if layout.config["quant_method"] == "compressed-tensors":
        layout.config["ignore"] = ["lm_head", "re:.*o_proj"]
    quantize_checkpoint(dense, tmp_path / "model", layout)

    source = open_model(tmp_path / "model").source

    assert source.scheme("layers.0.o") == "F32"
    assert source.scheme("layers.0.down") in {"INT4", "UINT4"}


def test_scales_of_activations_are_not_needed(copied):
    path = copied("fp8")
    edit_config(path, activation_scheme="static")
    edit_tensors(path, lambda t: t.update({f"{GATE}.input_scale": torch.ones(1)}))

    (notice,) = open_model(path).notices

    assert f"not used, as both get their own while they are computed: {GATE}.input_scale" in notice


@pytest.mark.parametrize(
    ("layout", "changes", "message"),
    [
        ("awq", {"quant_method": "bitsandbytes"}, "'bitsandbytes' is not supported; awq"),
        ("awq", {"quant_method": ...}, "'none given' is not supported"),
        ("awq", {"bits": 8}, "bits 8 is not supported; AWQ with 4 bits is"),
        ("awq", {"version": "gemv"}, "version 'gemv' is not supported"),
        ("awq", {"zero_point": False}, "zero_point False is not supported"),
        ("awq", {"group_size": 0}, "group_size must be -1 or positive, got 0"),
        ("awq", {"modules_to_not_convert": "o_proj"}, "must be a list of strings"),
        ("gptq", {"bits": 3}, "bits 3 is not supported; GPTQ with 4 or 8 bits is"),
        ("gptq", {"bits": "4"}, "bits must be an integer, got '4'"),
        ("gptq", {"checkpoint_format": "marlin"}, "checkpoint_format 'marlin'"),
        ("gptq", {"dynamic": {"+:.*down.*": {"bits": 8}}}, "dynamic changes"),
        ("fp8", {"fmt": "e5m2"}, "fmt 'e5m2' is not supported"),
        ("fp8", {"weight_block_size": [128]}, "must be two positive integers"),
        ("compressed fp8", {"quantization_status": "frozen"}, "'frozen' is not supported"),
        ("compressed fp8", {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse"),
        ("compressed fp8", {"config_groups": {}}, "config_groups is missing"),
        ("compressed fp8", {"format": "nvfp4-pack-quantized"}, "nvfp4-pack-quantized"),
        (
            "compressed fp8",
            {"transform_config": {"config_groups": {"R1": {}}}},
            "rotations",
        ),
        ("compressed words", {"ignore": ["re:("]}, "is no pattern"),
    ],
)
def test_what_cannot_be_served_is_refused_by_its_key(layout, changes, message, copied):
    path = copied(layout)
    edit_config(path, **changes)

    with pytest.raises(ModelError) as error:
        open_model(path)

    assert message in str(error.value)


def drop(name):
    return lambda tensors: tensors.pop(name)


def put(name, value):
    return lambda tensors: tensors.update({name: value})


@pytest.mark.parametrize(
    ("layout", "change", "message"),
    [
        (
            "awq",
            drop(f"{GATE}.scales"),
            f"model.safetensors: {GATE}.scales is missing, which {GATE}.qweight needs",
        ),
        (
            "gptq, asymmetric",
            drop(f"{GATE}.qzeros"),
            f"{GATE}.qzeros is missing, which {GATE}.qweight needs",
        ),
        (
            "gptq, act order",
            drop(f"{GATE}.g_idx"),
            f"{GATE}.g_idx is missing",
        ),
        (
            "fp8",
            drop(f"{GATE}.weight_scale"),
            f"{GATE}.weight_scale or {GATE}.weight_scale_inv is missing",
        ),
        (
            "awq",
            drop(f"{GATE}.qweight"),
            f"1 weights are missing: {GATE}.weight",
        ),
        (
            "awq",
            put(f"{GATE}.qweight", torch.zeros(64, 11, dtype=torch.int32)),
            f"model.safetensors: {GATE}.qweight has shape [64, 11], the configuration asks for "
            "[64, 12]",
        ),
        (
            "gptq",
            put(f"{GATE}.scales", torch.zeros(3, 96, dtype=torch.float16)),
            f"{GATE}.scales has shape [3, 96], the configuration asks for [2, 96]",
        ),
        (
            "compressed words",
            put(f"{GATE}.weight_scale", torch.zeros(96, 2, dtype=torch.int32)),
            f"{GATE}.weight_scale is stored as I32, not as F16 or BF16 or F32",
        ),
    ],
)
def test_a_tensor_that_is_missing_or_wrong_is_named(layout, change, message, copied):
    path = copied(layout)
    edit_tensors(path, change)

    with pytest.raises(ModelError) as error:
        open_model(path)

    assert message in str(error.value)


@pytest.mark.parametrize(
    ("layout", "change", "message"),
    [
        (
            "gptq",
            put(f"{GATE}.qzeros", torch.zeros(2, 12, dtype=torch.int32)),
            f"model.safetensors: {GATE}: qzeros has zero points other than the 8 that sym",
        ),
        (
            "gptq",
            put(f"{GATE}.g_idx", torch.zeros(64, dtype=torch.int32)),
            f"{GATE}: g_idx has columns out of order, which desc_act does not say",
        ),
        (
            "gptq, act order",
            put(f"{GATE}.g_idx", torch.full((64,), 2, dtype=torch.int32)),
            f"{GATE}: g_idx names group 2, beyond the scales",
        ),
        (
            "compressed words",
            put(f"{GATE}.weight_shape", torch.tensor([64, 96])),
            f"{GATE}: weight_shape says [64, 96], the model needs [96, 64]",
        ),
    ],
)
def test_contents_that_contradict_the_configuration_are_named(layout, change, message, copied):
    path = copied(layout)
    edit_tensors(path, change)

    with pytest.raises(ModelError) as error:
        open_model(path).source.load("layers.0.gate").to_float32()

    assert message in str(error.value)


def test_a_file_cut_short_is_refused_with_both_sizes(copied):
    path = copied("awq")
    file = path / "model.safetensors"
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.truncate(size - 100)

    with pytest.raises(ModelError, match=f"expected {size} bytes .* has {size - 100}"):
        open_model(path)


def test_codes_of_a_module_that_is_to_be_dense_are_refused(copied):
    path = copied("awq")
    edit_config(path, modules_to_not_convert=["mlp"])

    with pytest.raises(ModelError, match=r"layers\.0\.mlp\..*_proj is quantised, but config\.json"):
        open_model(path)


def test_codes_without_a_configuration_are_refused(copied):
    path = copied("awq")
    config = orjson.loads((path / "config.json").read_bytes())
    del config["quantization_config"]
    (path / "config.json").write_bytes(orjson.dumps(config))

    with pytest.raises(
        ModelError, match=r"is quantised, but config\.json has no quantization_conf"
    ):
        open_model(path)


@pytest.mark.parametrize(
    ("layout", "scheme"),
    [
        (Fp8Linear((0, 0)), "F8_E4M3"),
        (Fp8Linear((1, 0)), "F8_E4M3"),
        (Fp8Linear((1, 0), weights_only=True), "F8_E4M3 weights"),
        (Fp8Linear((128, 128)), "F8_E4M3 weights"),
        (Fp8Linear((1, 64)), "F8_E4M3 weights"),
        (Fp8Linear((128, 512)), "F8_E4M3"),  # of which a matrix of 256 columns has one in a row
        (Fp8Linear((128, 96)), "F8_E4M3 with scattered scales"),
        (Fp8Linear((1, 32)), "F8_E4M3 with scattered scales"),
    ],
    ids=str,
)
def test_a_scheme_says_which_columns_share_a_scale_of_fp8(layout, scheme):
    assert layout.scheme((300, 256)) == scheme


@pytest.mark.parametrize(
    ("activations", "scheme"),
    [(None, "F8_E4M3 weights"), ({"num_bits": 8, "type": "float", "dynamic": True}, "F8_E4M3")],
)
def test_fp8_whose_activations_stay_wide_is_told_apart(activations, scheme, copied):
    path = copied("compressed fp8")
    config = orjson.loads((path / "config.json").read_bytes())
    (group,) = config["quantization_config"]["config_groups"].values()
    edit_config(path, config_groups={"group_0": group | {"input_activations": activations}})

    assert open_model(path).source.scheme("layers.0.q") == scheme
