"""The Python API runs batches over an engine of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from octavo import LLM, SamplingParams

from router_svc.errors import ApiError
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
