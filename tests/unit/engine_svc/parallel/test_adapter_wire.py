"""An adapter arrives at every rank as rank 0 has it; nothing else is taken for one."""

from __future__ import annotations

import numpy as np
import pytest

from engine_svc.parallel.adapter_wire import encode_adapter, hear_adapter
from engine_svc.parallel.step_wire import HEAD, rest_length
from kernels.lora import LoraAdapter, LowRank


def _adapter() -> LoraAdapter:
    random = np.random.default_rng(0)

    def values(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, np.float32)

    mapped = values(3, 8)
    mapped.flags.writeable = False  # as a file's
    return LoraAdapter(
        {
            "layers.0.q": LowRank(mapped, values(10, 3)),
            "layers.11.down": LowRank(values(5, 12)[:, ::2], values(8, 5)),
        }
    )


def _heard(messages: list[np.ndarray]):
    head, *rest = messages

    def hear(count: int) -> np.ndarray:
        message = rest.pop(0)
        assert message.dtype == np.int32
        assert message.flags.writeable  # torch wants that of what it sends
        assert message.shape == (count,)
        return message

    heard = hear_adapter(head, hear)
    assert rest == []
    return heard


def test_an_adapter_arrives_with_its_slot() -> None:
    sent = _adapter()

    slot, found = _heard(list(encode_adapter(7, sent)))

    assert slot == 7
    assert list(found.matrices) == list(sent.matrices)
    for name, matrix in sent.matrices.items():
        assert np.array_equal(found.matrices[name].a, matrix.a)
        assert np.array_equal(found.matrices[name].b, matrix.b)


def test_an_empty_slot_is_one_message_of_the_size_that_ranks_wait_for() -> None:
    (head,) = encode_adapter(3, None)

    assert len(head) == HEAD
    assert _heard([head]) == (3, None)


def test_an_adapter_is_no_step_and_a_step_no_adapter() -> None:
    (head,) = encode_adapter(3, None)
    with pytest.raises(ValueError, match="a step was expected of rank 0"):
        rest_length(head)

    head[0] = 1
    with pytest.raises(ValueError, match="an adapter was expected of rank 0"):
        _heard([head])


@pytest.mark.parametrize(("column", "number"), [(0, -1), (1, 7), (2, 0), (4, -8)])
def test_a_matrix_of_no_model_is_refused_before_it_is_heard(column: int, number: int) -> None:
    head, table, *_ = encode_adapter(0, _adapter())
    table[column] = number

    with pytest.raises(ValueError, match="a matrix of an adapter was expected"):
        _heard([head, table])
