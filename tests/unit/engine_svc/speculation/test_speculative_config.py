"""What --speculative-config accepts."""

from __future__ import annotations

import pytest

from engine_svc.speculation.config import SpeculationConfig, parse_speculative_config


def test_vllms_keys_are_understood() -> None:
    config = parse_speculative_config(
        '{"method":"ngram","num_speculative_tokens":5,"prompt_lookup_max":4,"prompt_lookup_min":2}'
    )

    assert config == SpeculationConfig(5, prompt_lookup_max=4, prompt_lookup_min=2)


def test_one_lookup_bound_is_also_the_other() -> None:
    config = parse_speculative_config(
        '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 7}'
    )

    assert (config.prompt_lookup_min, config.prompt_lookup_max) == (7, 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ngram", "is not JSON"),
        ("[1]", "must be a JSON object"),
        ('{"num_speculative_tokens": 5}', "method"),
        ('{"method": "eagle", "num_speculative_tokens": 5}', "ngram"),
        ('{"method": "ngram"}', "num_speculative_tokens"),
        ('{"method": "ngram", "num_speculative_tokens": 5, "draft": 1}', "unknown key 'draft'"),
        ('{"method": "ngram", "num_speculative_tokens": "5"}', "must be an integer, got '5'"),
        ('{"method": "ngram", "num_speculative_tokens": true}', "must be an integer"),
        ('{"method": "ngram", "num_speculative_tokens": 0}', "must be at least 1, got 0"),
        (
            '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 5, '
            '"prompt_lookup_max": 3}',
            "prompt_lookup_min 5 is above prompt_lookup_max 3",
        ),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_speculative_config(text)
