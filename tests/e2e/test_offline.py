"""The Python API runs batches over an engine of its own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from octavo import LLM, LoRARequest, SamplingParams, StructuredOutputsParams

from engine_svc.loader.open_model import open_model
from router_svc.errors import ApiError
from tests.support.peft_files import make_adapter
from tests.support.tiny_encoders import make_tiny_encoder
from tests.support.tiny_models import make_tiny


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    model = tmp_path_factory.mktemp("offline") / "model"
    make_tiny("llama", model)
    with LLM(str(model), dtype="bfloat16") as llm:
        yield llm


def test_thousands_of_prompts_come_back_in_their_order(llm: LLM, capsys) -> None:
    prompts = [[1 + i % 100, 2 + i // 100] for i in range(2000)]
    greedy = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)

    outputs = llm.generate(prompts, greedy)

    assert [output.prompt_token_ids for output in outputs] == prompts
    assert all(len(output.outputs[0].token_ids) == 2 for output in outputs)
    assert "2000/2000" in capsys.readouterr().out


def test_each_prompt_may_have_its_own_sampling(llm: LLM) -> None:
    one, three = SamplingParams(max_tokens=1), SamplingParams(max_tokens=3, n=2, ignore_eos=True)

    outputs = llm.generate(["hello", "hello"], [one, three], show_progress=False)

    assert [[len(choice.token_ids) for choice in o.outputs] for o in outputs] == [[1], [3, 3]]


def test_a_single_prompt_need_not_be_a_list(llm: LLM) -> None:
    (output,) = llm.generate("hello", SamplingParams(max_tokens=1), show_progress=False)

    assert output.prompt == "hello"
    assert output.outputs[0].finish_reason in ("length", "stop")


def test_chat_uses_the_models_template(llm: LLM) -> None:
    (output,) = llm.chat([{"role": "user", "content": "hello"}], show_progress=False)

    assert len(output.prompt_token_ids) > len(llm.generate("hello")[0].prompt_token_ids)


def test_a_prompt_that_is_too_long_is_refused_with_both_numbers(llm: LLM) -> None:
    with pytest.raises(ValueError, match=r"a prompt has 100000 tokens, the context holds \d+"):
        llm.generate([[1] * 100_000])


def test_what_the_engine_refuses_is_raised_by_name(llm: LLM) -> None:
    with pytest.raises(ApiError, match="temperature"):
        llm.generate("hello", SamplingParams(temperature=-1), show_progress=False)


def test_unequal_numbers_of_prompts_and_params_are_refused(llm: LLM) -> None:
    with pytest.raises(ValueError, match="1 sampling_params for 2 prompts"):
        llm.generate(["a", "b"], [SamplingParams()])


def test_closing_ends_the_engine(tmp_path: Path) -> None:
    make_tiny("llama", tmp_path / "model")
    llm = LLM(str(tmp_path / "model"), dtype="bfloat16")
    (engine,) = (p for p in psutil.Process().children() if str(tmp_path) in " ".join(p.cmdline()))

    llm.close()

    assert not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE
    llm.close()  # once more does nothing


def test_a_model_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    make_tiny("llama", tmp_path / "model")

    with pytest.raises(RuntimeError, match="the engine did not start"):
        LLM(str(tmp_path / "model"), num_gpu_blocks_override=1, max_model_len=64)


QUIET = {"show_progress": False}


def test_the_forms_bad_words_and_allowed_tokens_of_sampling_hold(llm: LLM) -> None:
    common = {"n": 2, "seed": 1, "max_tokens": 8, "ignore_eos": True}
    (token,) = llm.generate("a", **QUIET)[0].prompt_token_ids[-1:]

    form, bad, allowed = llm.generate(
        ["a", "a", "a"],
        [
            SamplingParams(**common, structured_outputs=StructuredOutputsParams(regex="[0-9]{3}")),
            SamplingParams(**common, bad_words=["a"]),
            SamplingParams(**common, allowed_token_ids=[token]),
        ],
        **QUIET,
    )

    assert all(re.fullmatch("[0-9]{3}", choice.text) for choice in form.outputs)
    assert all(token not in choice.token_ids for choice in bad.outputs)
    assert all(set(choice.token_ids) == {token} for choice in allowed.outputs)


def test_a_form_that_cannot_be_enforced_is_refused(llm: LLM) -> None:
    params = SamplingParams(structured_outputs=StructuredOutputsParams(regex="["))

    with pytest.raises(ApiError, match="cannot be enforced"):
        llm.generate("a", params, **QUIET)


def test_a_prompt_is_cut_where_asked(llm: LLM) -> None:
    whole = llm.generate("hello world", SamplingParams(max_tokens=1), **QUIET)[0]

    cut = llm.generate("hello world", SamplingParams(max_tokens=1, truncate_prompt_tokens=3))[0]

    assert cut.prompt_token_ids == whole.prompt_token_ids[-3:]
    with pytest.raises(ValueError, match="truncate_prompt_tokens must be -1 or between 1 and"):
        llm.generate("hello", SamplingParams(truncate_prompt_tokens=0), **QUIET)


def test_chat_shows_the_tools_to_the_model(llm: LLM) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    messages = [{"role": "user", "content": "hello"}]

    last = SamplingParams(max_tokens=1, truncate_prompt_tokens=-1)  # the model's context is short

    (output,) = llm.chat(messages, last, tools=[tool], **QUIET)

    assert "weather" in output.prompt
    with pytest.raises(ApiError, match="role"):
        llm.chat([{"role": "wizard", "content": "hello"}], **QUIET)


def test_a_generator_embeds_by_its_last_token(llm: LLM) -> None:
    first, second, other = llm.embed(["hello", "hello", "world"])

    assert first.outputs.embedding == second.outputs.embedding != other.outputs.embedding
    assert math.hypot(*first.outputs.embedding) == pytest.approx(1, abs=1e-5)


def test_an_encoder_embeds_texts_and_token_ids(tmp_path: Path) -> None:
    pooling = {"word_embedding_dimension": 48, "pooling_mode_mean_tokens": True}
    model = make_tiny_encoder("bert", tmp_path / "model", pooling=pooling)

    with LLM(str(model)) as encoder:
        sea, sky = encoder.embed(["the sea", "the sky"])
        (alone,) = encoder.embed("the sea")
        (short,) = encoder.embed([2, 5, 3], dimensions=8)
        with pytest.raises(ValueError, match="cannot be mixed"):
            encoder.embed(["a", [1]])
        with pytest.raises(ValueError, match="does not generate"):
            encoder.generate("a", **QUIET)

    assert len(sea.outputs.embedding) == 48
    assert sea.outputs.embedding == pytest.approx(alone.outputs.embedding, abs=1e-6)
    assert sea.outputs.embedding != sky.outputs.embedding
    assert math.hypot(*short.outputs.embedding) == pytest.approx(1, abs=1e-5)
    assert len(short.outputs.embedding) == 8


def test_a_call_may_name_an_adapter_by_its_path_or_one_of_the_start(tmp_path: Path) -> None:
    model = make_tiny("llama", tmp_path / "model")
    spec = open_model(model).spec
    first, later = (
        make_adapter(tmp_path / name, spec, seed=seed, std=0.3)
        for seed, name in enumerate(("first", "later"))
    )
    greedy = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)

    def tokens(lora_request: LoRARequest | None = None) -> list[int]:
        (output,) = llm.generate("hello", greedy, lora_request=lora_request, show_progress=False)
        return output.outputs[0].token_ids

    with LLM(str(model), enable_lora=True, lora_modules=[f"first={first}"]) as llm:
        plain = tokens()
        by_name = tokens(LoRARequest("first"))
        by_path = tokens(LoRARequest("later", 2, str(later)))

        assert len({tuple(each) for each in (plain, by_name, by_path)}) == 3
        assert tokens(LoRARequest("again", 3, str(first))) == by_name
        assert tokens() == plain
        with pytest.raises(ValueError, match="no adapter 'absent' is loaded"):
            tokens(LoRARequest("absent"))
        with pytest.raises(ApiError, match="must be an adapter's directory"):
            tokens(LoRARequest("nowhere", 4, str(tmp_path / "nowhere")))
