"""Keys of rank_pattern and alpha_pattern mean the modules that PEFT's own rule finds."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from engine_svc.adapters.module_patterns import matcher

MODULES = [
    f"model.layers.{layer}.{part}"
    for layer in (0, 1, 9, 10, 11, 27)
    for part in ("self_attn.q_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.down_proj")
]


def by_peft(pattern: str, module: str) -> bool:
    """PEFT's `get_pattern_key` for one key."""
    return re.match(rf"(.*\.)?({pattern})$", module) is not None


@pytest.mark.parametrize(
    "pattern",
    [
        "q_proj",
        "proj",
        "layers.1.mlp.down_proj",
        r"^model\.layers\.1\.mlp\.down_proj$",
        "^layers.1.mlp.down_proj",
        ".*q_proj",
        r".*\.(q|v)_proj",
        r"layers\.(0|1|27)\..*",
        r"model.layers.[0-9].self_attn.(?:q_proj|v_proj)",
        r"layers\.\d+\.mlp\.\w+",
        r"layers\.\d{2}\.mlp\..*?",
        r"layers\.[02-9]{1,}\.[^.]+\.(gate|down)_proj",
        r"(^model|layers)\.1?[01]\.mlp\.\w{4,9}$",
        r"(mlp|self_attn)(\.[a-z]+)?_proj",
        r"(layers\.|mlp\.|10\.)+down_proj",
        "^q_proj|v_proj$",
        "[]._a-z-]*",
        "",
    ],
)
def test_a_pattern_means_what_it_means_to_peft(pattern):
    matches = matcher(pattern)

    assert [matches(module) for module in MODULES] == [by_peft(pattern, m) for m in MODULES]


def test_whatever_is_put_together_means_the_same_or_is_refused():
    draw = random.Random(5)
    pieces = ["a", "b", ".", r"\.", "[ab]", "[^a]", "(", "(?:", ")", "|", "*", "+", "?", "{1,2}",
              "^", "$"]  # fmt: skip
    runs = (itertools.product("ab.", repeat=length) for length in range(1, 5))
    names = ["".join(letters) for letters in itertools.chain.from_iterable(runs)]
    num_taken = 0
    for _ in range(3000):
        pattern = "".join(draw.choices(pieces, k=draw.randint(1, 7)))
        try:
            matches = matcher(pattern)
        except ValueError:
            continue
        num_taken += 1
        for name in draw.sample(names, 12):
            assert matches(name) == by_peft(pattern, name), (pattern, name)

    assert num_taken > 500


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(a+)+", "a repeat within a repeat"),
        ("((a{9}){9}){9}", "a repeat within a repeat"),
        ("a**", "a repeat of a repeat"),
        ("a++", "a repeat of a repeat"),
        ("a*" * 9, "more than 8 repeats"),
        ("a{17}", "above 16"),
        ("a{2,1}", "out of order"),
        ("*a", "repeats nothing"),
        ("(a", "without a )"),
        ("a)|(b", ") without a ("),
        ("(?=a)a", "more than that"),
        (r"(a)\1", r"\1"),
        (r"\ba", r"\b"),
        ("[a", "ends too early"),
        ("[b-a]", "a range of characters that is none"),
        ("(" * 17 + ")" * 17, "more than 16 deep"),
        ("a" * 250 + ".*aaaaa", "more than 256 characters"),
        ("é.*", "beyond ASCII"),
    ],
)
def test_what_is_not_simple_is_refused(pattern, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        matcher(pattern)
