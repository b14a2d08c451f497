"""Memory is planned against given limits; nothing here looks at the machine."""

from dataclasses import replace

import pytest

from engine_svc.memory import (
    AvailableMemory,
    DoesNotFitError,
    PoolRequest,
    available_memory,
    format_bytes,
    plan_memory,
    summary_lines,
)
from kernels.backend import MemoryNeeds
from kernels.spec import DecoderSpec, LayerSpec, RopeSpec

MIB = 1 << 20
NEEDS = MemoryNeeds(weights=500 * MIB, activations=100 * MIB, kv_per_block=1 * MIB)


def pool(**changes):
    asked = {
        "block_size": 16,
        "max_num_seqs": 4,
        "model_len": 1600,  # 100 blocks
        "max_model_len": None,
        "memory_bytes": None,
        "num_blocks": None,
    }
    return PoolRequest(**(asked | changes))


def free(mib):
    return AvailableMemory(mib * MIB, "available system memory")


def test_the_pool_is_half_of_what_is_left():
    plan = plan_memory(NEEDS, free(1000), pool())

    assert plan.num_blocks == 200
    assert plan.pool_tokens == 3200
    assert plan.max_model_len == 1600
    assert plan.max_concurrency == pytest.approx(2.0)
    assert plan.notices == ()


def test_adapters_are_kept_out_of_the_pool_and_told():
    plan = plan_memory(replace(NEEDS, adapters=200 * MIB), free(1000), pool())

    assert plan.num_blocks == 100
    assert "200.00 MiB for adapters" in summary_lines(plan, SPEC, 2)[0]


def test_the_pool_is_never_larger_than_requests_can_use():
    plan = plan_memory(NEEDS, free(100_000), pool())

    assert plan.num_blocks == 400  # max_num_seqs × one full context
    assert plan.max_concurrency == pytest.approx(4.0)


def test_the_pool_stays_below_its_default_limit():
    plan = plan_memory(NEEDS, free(100_000), pool(max_num_seqs=256))

    assert plan.pool_bytes == 4 << 30


def test_a_context_length_nobody_asked_for_is_reduced_with_a_notice():
    plan = plan_memory(NEEDS, free(700), pool())

    assert plan.num_blocks == 50
    assert plan.max_model_len == 800
    assert "1600" in plan.notices[0]
    assert "800" in plan.notices[0]
    assert "--kv-cache-memory-bytes" in plan.notices[0]


def test_a_context_length_that_was_asked_for_takes_more_than_the_default_share():
    plan = plan_memory(NEEDS, free(700), pool(max_model_len=1600))

    assert plan.num_blocks == 100
    assert plan.max_concurrency == pytest.approx(1.0)


def test_a_context_length_that_cannot_fit_is_refused_with_both_numbers_and_the_flag():
    with pytest.raises(DoesNotFitError) as refused:
        plan_memory(NEEDS, free(650), pool(max_model_len=1600))

    message = str(refused.value)
    assert "1600 tokens" in message
    assert "800 tokens" in message
    assert "--max-model-len" in message


def test_a_pool_that_holds_no_context_is_refused():
    with pytest.raises(DoesNotFitError, match="--kv-cache-memory-bytes"):
        plan_memory(NEEDS, free(1000), pool(max_model_len=1600, memory_bytes=99 * MIB))


def test_a_pool_smaller_than_a_block_is_refused():
    with pytest.raises(DoesNotFitError, match="--kv-cache-memory-bytes"):
        plan_memory(NEEDS, free(1000), pool(memory_bytes=10))


def test_weights_that_do_not_fit_are_refused_with_both_numbers():
    with pytest.raises(DoesNotFitError) as refused:
        plan_memory(NEEDS, free(600), pool())

    message = str(refused.value)
    assert message.count("600.00 MiB") == 2  # needed, and free
    assert "system memory" in message


@pytest.mark.parametrize(
    ("asked", "flag"),
    [
        ({"memory_bytes": 401 * MIB}, "--kv-cache-memory-bytes"),
        ({"num_blocks": 401}, "--num-gpu-blocks-override"),
    ],
)
def test_a_pool_beyond_free_memory_is_refused_and_names_its_flag(asked, flag):
    with pytest.raises(DoesNotFitError, match=flag):
        plan_memory(NEEDS, free(1000), pool(max_num_seqs=100, **asked))


def test_given_bytes_are_rounded_down_to_blocks():
    plan = plan_memory(NEEDS, free(1000), pool(memory_bytes=150 * MIB + 1))

    assert plan.num_blocks == 150


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_the_tightest_group_above_the_process_is_the_bound(tmp_path):
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pods/engine\n",
            "sys/fs/cgroup/memory.max": "max\n",
            "sys/fs/cgroup/pods/memory.max": "1000\n",
            "sys/fs/cgroup/pods/memory.current": "900\n",
            "sys/fs/cgroup/pods/engine/memory.max": "800\n",
            "sys/fs/cgroup/pods/engine/memory.current": "300\n",
        },
    )

    found = available_memory(10_000, tmp_path)

    assert found.num_bytes == 100
    assert "cgroup limit of 1000 bytes" in found.bound


def test_page_cache_that_the_kernel_can_drop_counts_as_free(tmp_path):
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": "1000\n",
            "sys/fs/cgroup/memory.current": "900\n",
            "sys/fs/cgroup/memory.stat": "anon 200\ninactive_file 650\n",
        },
    )

    assert available_memory(10_000, tmp_path).num_bytes == 750


def test_version_1_groups_are_read_even_when_the_path_is_the_hosts(tmp_path):
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/0123\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "2000\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "500\n",
        },
    )

    assert available_memory(10_000, tmp_path).num_bytes == 1500


def test_without_a_group_the_system_is_the_bound(tmp_path):
    assert available_memory(10_000, tmp_path) == AvailableMemory(10_000, "available system memory")


SPEC = DecoderSpec(
    vocab_size=100,
    hidden_size=64,
    intermediate_size=64,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    layers=(LayerSpec(RopeSpec()),) * 3,
    norm_eps=1e-5,
    max_position=1600,
    attention_scale=0.25,
)


@pytest.mark.parametrize(
    ("element_bytes", "per_vector", "arithmetic"),
    [(4, 64, "16 elements × 4 bytes"), (1, 20, "(16 elements × 1 byte + 4 of scale)")],
    ids=["float32", "int8"],
)
def test_the_summary_shows_the_arithmetic_and_the_concurrency(
    element_bytes, per_vector, arithmetic
):
    per_token = 2 * 3 * 2 * per_vector
    needs = MemoryNeeds(weights=MIB, activations=MIB, kv_per_block=16 * per_token)

    lines = summary_lines(plan_memory(needs, free(1000), pool()), SPEC, element_bytes)

    counts = "2 (K, V) × 3 layers × 2 KV heads"
    assert lines[1] == f"KV per token: {per_token} bytes = {counts} × {arithmetic}"
    assert lines[-1] == "Maximum concurrency for 1,600 tokens per request: 4.00x"


def test_sizes_read_like_sizes():
    assert [format_bytes(n) for n in (12, 2048, 5 * MIB, 3 << 30)] == [
        "12 bytes",
        "2.00 KiB",
        "5.00 MiB",
        "3.00 GiB",
    ]
