"""A model directory is read whole or refused with the name of what is wrong."""

from __future__ import annotations

import orjson
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine_svc.loader.open_model import open_model
from engine_svc.models.errors import ModelError
from tests.support.run_decoder import reference_logits
from tests.support.stored_tensors import values
from tests.support.tiny_models import make_tiny, make_tokenizer

MIB = 1 << 20


def edit_json(path, **changes):
    """Sets keys of a JSON file; a key given as ... is taken out."""
    value = orjson.loads(path.read_bytes()) if path.exists() else {}
    value |= changes
    path.write_bytes(orjson.dumps({k: v for k, v in value.items() if v is not ...}))


def edit_weights(directory, change):
    """Lets `change` alter the dict of tensors of a single-file checkpoint."""
    weights = load_file(directory / "model.safetensors")
    change(weights)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


class TestFiles:
    def test_a_shard_cut_short_is_refused_with_both_sizes(self, tmp_path):
        make_tiny("llama", tmp_path, hidden_size=256, max_shard_size="2MB")
        shards = sorted(tmp_path.glob("model-*.safetensors"))
        second = shards[1]
        size = second.stat().st_size
        with second.open("r+b") as file:
            file.truncate(size - MIB)

        with pytest.raises(ModelError) as error:
            open_model(tmp_path)

        assert len(shards) == 3
        assert str(error.value) == (
            f"{second.name}: expected {size} bytes by its header, the file has {size - MIB}"
        )

    def test_a_missing_shard_is_named(self, tmp_path):
        make_tiny("llama", tmp_path, max_shard_size="200KB")
        gone = sorted(tmp_path.glob("model-*.safetensors"))[1]
        gone.unlink()

        with pytest.raises(ModelError, match=f"{gone.name}, which is missing"):
            open_model(tmp_path)

    def test_an_index_that_places_a_tensor_wrongly_is_refused(self, tmp_path):
        make_tiny("llama", tmp_path, max_shard_size="200KB")
        index = tmp_path / "model.safetensors.index.json"
        files = orjson.loads(index.read_bytes())["weight_map"]
        others = [f for f in files.values() if f != files["model.norm.weight"]]
        edit_json(index, weight_map=files | {"model.norm.weight": others[0]})

        with pytest.raises(ModelError, match=r"model\.norm\.weight"):
            open_model(tmp_path)

    def test_an_index_cannot_lead_out_of_the_directory(self, tmp_path):
        make_tiny("llama", tmp_path, max_shard_size="200KB")
        index = tmp_path / "model.safetensors.index.json"
        edit_json(index, weight_map={"model.norm.weight": "../secret.safetensors"})

        with pytest.raises(ModelError, match="not a file name"):
            open_model(tmp_path)

    def test_a_missing_weight_is_named(self, tmp_path):
        make_tiny("llama", tmp_path)
        edit_weights(tmp_path, lambda w: w.pop("model.layers.2.mlp.up_proj.weight"))

        with pytest.raises(ModelError, match=r"missing: model\.layers\.2\.mlp\.up_proj\.weight"):
            open_model(tmp_path)

    def test_a_weight_of_another_shape_is_named_with_both_shapes(self, tmp_path):
        make_tiny("llama", tmp_path)
        edit_json(tmp_path / "config.json", intermediate_size=128)

        with pytest.raises(ModelError, match=r"shape \[96, 64\].* asks for \[128, 64\]"):
            open_model(tmp_path)

    def test_a_weight_without_a_place_is_reported(self, tmp_path):
        make_tiny("llama", tmp_path)
        edit_weights(
            tmp_path,
            lambda w: w.update(
                {"adapter.weight": torch.ones(2), "model.rotary_emb.inv_freq": torch.ones(8)}
            ),
        )

        notices = open_model(tmp_path).notices

        assert notices == ("1 weights are not used: adapter.weight",)

    @pytest.mark.parametrize(
        ("dtype", "scheme"),
        [(torch.float32, "F32"), (torch.float16, "F16"), (torch.bfloat16, "BF16")],
    )
    def test_weights_are_views_of_the_file(self, dtype, scheme, tmp_path):
        make_tiny("llama", tmp_path, dtype=dtype)
        expected = load_file(tmp_path / "model.safetensors")["model.layers.1.mlp.up_proj.weight"]

        source = open_model(tmp_path).source
        weight = source.load("layers.1.up")

        assert (weight.scheme, weight.shape) == (scheme, (96, 64))
        assert source.scheme("layers.1.up") == scheme
        assert not weight.data.flags.writeable
        assert not weight.data.flags.owndata
        assert torch.equal(values(weight), expected.float())

    def test_weights_in_float64_come_in_float32(self, tmp_path):
        make_tiny("llama", tmp_path, dtype=torch.float64)
        expected = load_file(tmp_path / "model.safetensors")["model.embed_tokens.weight"]

        opened = open_model(tmp_path)
        weight = opened.source.load("embed")

        assert (opened.dtype, weight.scheme) == ("float32", "F32")
        assert torch.equal(values(weight), expected.float())
        assert opened.source.total_bytes == 4 * opened.num_parameters

    def test_weights_in_integers_are_refused(self, tmp_path):
        make_tiny("llama", tmp_path)
        name = "model.layers.0.mlp.up_proj.weight"
        edit_weights(tmp_path, lambda w: w.update({name: w[name].to(torch.int8)}))

        with pytest.raises(ModelError, match=f"{name} is stored as I8"):
            open_model(tmp_path)

    @pytest.mark.parametrize("prefix", ["", "language_model.model.", "model.language_model."])
    def test_a_decoder_inside_another_model_is_found(self, prefix, tmp_path):
        make_tiny("llama", tmp_path, tie_word_embeddings=True)
        expected = load_file(tmp_path / "model.safetensors")["model.norm.weight"]

        def move(weights):
            for name in list(weights):
                weights[prefix + name.removeprefix("model.")] = weights.pop(name)

        edit_weights(tmp_path, move)

        assert torch.equal(values(open_model(tmp_path).source.load("final_norm")), expected)

    def test_neither_directory_nor_model_is_a_clear_error(self, tmp_path):
        with pytest.raises(ModelError, match=r"no config\.json"):
            open_model(tmp_path)
        with pytest.raises(ModelError, match="no model at"):
            open_model(tmp_path / "absent")


class TestHead:
    def test_tied_and_saved_without_a_head(self, tmp_path):
        make_tiny("llama", tmp_path, tie_word_embeddings=True)

        opened = open_model(tmp_path)

        assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
        assert opened.spec.tied_head

    def test_tied_and_saved_with_the_same_head(self, tmp_path):
        make_tiny("llama", tmp_path, tie_word_embeddings=True)
        plain = open_model(tmp_path)
        edit_weights(
            tmp_path,
            lambda w: w.update({"lm_head.weight": w["model.embed_tokens.weight"].clone()}),
        )

        opened = open_model(tmp_path)

        assert opened.spec == plain.spec
        assert opened.notices == ()

    def test_tied_and_saved_with_the_same_head_in_another_type(self, tmp_path):
        make_tiny("llama", tmp_path, tie_word_embeddings=True, dtype=torch.bfloat16)
        edit_weights(
            tmp_path, lambda w: w.update({"lm_head.weight": w["model.embed_tokens.weight"].float()})
        )

        assert open_model(tmp_path).notices == ()

    def test_tied_but_saved_with_another_head_uses_both_as_transformers_does(self, tmp_path):
        from transformers import AutoModelForCausalLM

        make_tiny("llama", tmp_path, tie_word_embeddings=True)
        edit_weights(
            tmp_path, lambda w: w.update({"lm_head.weight": -w["model.embed_tokens.weight"]})
        )

        opened = open_model(tmp_path)

        model = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
        with torch.inference_mode():
            theirs = model(torch.tensor([[1, 2, 3]])).logits[0]
        (ours,) = reference_logits(opened, [[1, 2, 3]])
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)
        assert any("both are used" in notice for notice in opened.notices)

    def test_tied_and_saved_with_the_head_alone(self, tmp_path):
        make_tiny("llama", tmp_path, tie_word_embeddings=True)
        plain = values(open_model(tmp_path).source.load("embed"))
        edit_weights(
            tmp_path, lambda w: w.update({"lm_head.weight": w.pop("model.embed_tokens.weight")})
        )

        opened = open_model(tmp_path)

        assert opened.spec.tied_head
        assert torch.equal(values(opened.source.load("embed")), plain)

    def test_not_tied_and_without_a_head_is_refused(self, tmp_path):
        make_tiny("llama", tmp_path)
        edit_weights(tmp_path, lambda w: w.pop("lm_head.weight"))

        with pytest.raises(ModelError, match=r"lm_head\.weight is missing"):
            open_model(tmp_path)

    @pytest.mark.parametrize(("family", "tied"), [("llama", False), ("gemma3", True)])
    def test_where_nothing_is_said_the_family_decides(self, family, tied, tmp_path):
        make_tiny(family, tmp_path)
        edit_json(tmp_path / "config.json", tie_word_embeddings=...)

        assert open_model(tmp_path).spec.tied_head is tied


class TestSettings:
    def test_ends_are_the_union_of_all_files(self, tmp_path):
        make_tiny("llama", tmp_path, eos_token_id=5)
        edit_json(tmp_path / "generation_config.json", eos_token_id=[7, 9])

        opened = open_model(tmp_path)

        assert opened.eos_token_ids == {5, 7, 9, make_tokenizer().eos_token_id}

    def test_the_tokenizers_end_counts_where_no_config_has_one(self, tmp_path):
        make_tiny("llama", tmp_path)
        edit_json(tmp_path / "config.json", eos_token_id=None, bos_token_id=None)
        (tmp_path / "generation_config.json").unlink()

        opened = open_model(tmp_path)

        tokenizer = make_tokenizer()
        assert opened.eos_token_ids == {tokenizer.eos_token_id}
        assert opened.bos_token_id == tokenizer.bos_token_id

    @pytest.mark.parametrize(
        "layout",
        [
            {"eos_token": {"content": "<|im_end|>"}, "added_tokens_decoder": ...},
            {"eos_token": "Z", "added_tokens_decoder": ...},
            {"eos_token": "Z", "added_tokens_decoder": {"57": {"content": "Z"}}},
        ],
        ids=["an object", "a word of the vocabulary", "the older table of added tokens"],
    )
    def test_the_tokenizers_end_is_found_wherever_it_is_kept(self, layout, tmp_path):
        make_tiny("llama", tmp_path, eos_token_id=5)
        edit_json(tmp_path / "tokenizer_config.json", **layout)
        tokenizer = make_tokenizer()
        text = layout["eos_token"]
        expected = tokenizer.convert_tokens_to_ids(
            text if isinstance(text, str) else text["content"]
        )

        assert open_model(tmp_path).eos_token_ids >= {5, expected}

    def test_an_id_that_is_none_is_refused(self, tmp_path):
        make_tiny("llama", tmp_path)
        edit_json(tmp_path / "generation_config.json", eos_token_id=["</s>"])

        with pytest.raises(ModelError, match="eos_token_id must be token ids"):
            open_model(tmp_path)

    def test_only_the_sampling_defaults_that_are_set_are_taken(self, tmp_path):
        make_tiny("llama", tmp_path)
        edit_json(
            tmp_path / "generation_config.json", temperature=0, top_k=20, top_p=None, do_sample=True
        )

        assert open_model(tmp_path).default_sampling == {"temperature": 0.0, "top_k": 20.0}

    def test_what_is_told_to_the_operator(self, tmp_path):
        make_tiny("llama", tmp_path, dtype=torch.bfloat16, max_shard_size="100KB")

        opened = open_model(tmp_path)

        sizes = [f.stat().st_size for f in tmp_path.glob("*.safetensors")]
        weights = sum(
            t.numel() for f in tmp_path.glob("*.safetensors") for t in load_file(f).values()
        )
        assert opened.format == f"safetensors, {len(sizes)} files, bfloat16"
        assert (opened.dtype, opened.family) == ("bfloat16", "Llama")
        assert opened.file_bytes == sum(sizes)
        assert opened.num_parameters == weights
        assert opened.source.total_bytes == 2 * weights
        assert len(opened.weights_version) == len(opened.tokenizer_sha256) == 64


class TestRemoteCode:
    """auto_map names code that comes with a model. It is never run; nor are pickles opened."""

    EVIL = "from pathlib import Path\nPath(__file__).with_name('canary').touch()\n"

    @pytest.fixture
    def model(self, tmp_path):
        make_tiny("llama", tmp_path)
        (tmp_path / "evil.py").write_text(self.EVIL)
        auto_map = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
        edit_json(tmp_path / "config.json", auto_map=auto_map)
        edit_json(tmp_path / "tokenizer_config.json", auto_map={"AutoTokenizer": "evil.Tokenizer"})
        edit_json(tmp_path / "processor_config.json", auto_map={"AutoProcessor": "evil.Processor"})
        return tmp_path

    def test_is_ignored_with_a_notice_for_a_known_family(self, model):
        opened = open_model(model)

        assert not (model / "canary").exists()
        assert [n for n in opened.notices if "auto_map" in n] == [
            "auto_map is ignored: code that comes with a model is never run",
            "tokenizer_config.json: auto_map is ignored",
            "processor_config.json: auto_map is ignored",
        ]

    def test_is_refused_for_an_unknown_family(self, model):
        edit_json(model / "config.json", model_type="evil", architectures=["EvilForCausalLM"])

        with pytest.raises(ModelError, match=r"'evil' is not supported\. Known: Llama.*never run"):
            open_model(model)

        assert not (model / "canary").exists()

    def test_pickled_weights_are_refused(self, model):
        weights = load_file(model / "model.safetensors")
        (model / "model.safetensors").unlink()
        torch.save(weights, model / "pytorch_model.bin")

        with pytest.raises(ModelError, match=r"pytorch_model\.bin.*convert the model to safetens"):
            open_model(model)
