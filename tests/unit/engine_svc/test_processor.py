"""Cores and types are chosen by what the kernel's files say."""

import os

import pytest

from engine_svc.processor import choose_dtype, usable_cores


def with_files(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_cpu_quota_bounds_the_cores(tmp_path):
    root = with_files(
        tmp_path,
        {"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/cpu.max": "50000 100000\n"},
    )

    assert usable_cores(root) == 1


def test_without_a_quota_the_affinity_counts(tmp_path):
    root = with_files(
        tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}
    )

    assert usable_cores(root) == len(os.sched_getaffinity(0))


def test_version_1_quotas_are_read_and_minus_one_is_none(tmp_path):
    root = with_files(
        tmp_path,
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/pod\n",
            "sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )

    assert usable_cores(root) == 1


def cpu_with(root, flags):
    return with_files(root, {"proc/cpuinfo": f"processor\t: 0\nflags\t\t: fpu {flags}\n"})


@pytest.mark.parametrize("flags", ["avx2 avx512_bf16 avx512_fp16", "avx2"])
@pytest.mark.parametrize(
    ("asked", "stored", "chosen"),
    [
        ("auto", "bfloat16", "bfloat16"),
        ("auto", "float16", "bfloat16"),
        ("auto", "float32", "float32"),
        ("float16", "float16", "float16"),
        ("float32", "bfloat16", "float32"),
    ],
)
def test_with_the_kernels_auto_is_bfloat16_for_16_bits_on_every_cpu(
    tmp_path, asked, stored, chosen, flags
):
    root = cpu_with(tmp_path, flags)

    dtype, notice = choose_dtype(asked, stored, has_kernels=True, root=root)

    assert dtype == chosen
    assert (notice is not None) == ((asked, stored) == ("auto", "float16"))


def test_the_notice_on_float16_says_what_is_computed_and_how_to_keep_it():
    _, notice = choose_dtype("auto", "float16", has_kernels=True)

    assert "in bfloat16" in notice
    assert "--dtype float16" in notice


@pytest.mark.parametrize(
    ("asked", "stored", "flags", "chosen"),
    [
        ("auto", "bfloat16", "avx2 avx512_bf16", "bfloat16"),
        ("auto", "bfloat16", "avx2 avx512f", "float32"),
        ("auto", "float16", "avx512_bf16", "float32"),
        ("auto", "float32", "avx512_bf16", "float32"),
        ("bfloat16", "float32", "avx2", "bfloat16"),
    ],
)
def test_without_them_auto_is_the_checkpoints_type_where_the_cpu_computes_in_it(
    tmp_path, asked, stored, flags, chosen
):
    dtype, notice = choose_dtype(asked, stored, has_kernels=False, root=cpu_with(tmp_path, flags))

    assert dtype == chosen
    assert (notice is not None) == (asked == "auto" and chosen != stored)
