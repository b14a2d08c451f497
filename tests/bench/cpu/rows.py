"""The rows of the table: what is compared, under which load, and what Octavo is to reach."""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.cpu.work import Shape

SMOLLM2 = "smollm2-135m-instruct"
QWEN = "qwen2.5-0.5b-random"
MODELS = {SMOLLM2: "SmolLM2-135M", QWEN: "Qwen2.5-0.5B shape"}

ROOF = "machine"  # stands for a system that reads memory as fast as this machine can


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a turn. `key` is a field of Speed, or one of those below."""

    key: str
    label: str
    unit: str
    lower_is_better: bool = False


DECODE = Metric("decode_tok_s", "decode", "tok/s")
OUTPUT = Metric("output_tok_s", "output", "tok/s")
PREFILL = Metric("prefill_tok_s", "prefill", "tok/s")
TTFT_P50 = Metric("ttft_p50_ms", "TTFT p50", "ms", lower_is_better=True)
TTFT_P95 = Metric("ttft_p95_ms", "TTFT p95", "ms", lower_is_better=True)
WEIGHTS = Metric("weights_gb_s", "weights read", "GB/s")
KERNELS = Metric("kernel_share", "CPU time in kernels", "of engine + router")

SINGLE = Shape(concurrency=1, num_requests=4, prompt_tokens=32, output_tokens=128)
STREAMS_8 = Shape(concurrency=8, num_requests=16, prompt_tokens=128, output_tokens=128)
STREAMS_32 = Shape(concurrency=32, num_requests=64, prompt_tokens=128, output_tokens=128)
PREFILL_1024 = Shape(concurrency=1, num_requests=4, prompt_tokens=1024, output_tokens=1)
SHARED_1000 = Shape(8, 32, prompt_tokens=32, output_tokens=32, shared_tokens=1000)

BEST_OURS = ("octavo-int8-kv8", "octavo-int4-kv8")
BEST_PEERS = ("llama.cpp-Q4_0", "vllm-bf16", "openvino-int8", "openvino-int4")


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. Where several systems stand on a side, the best of them counts.

    `goal` is the least ratio ours / theirs, or the greatest where lower is better. Without peers
    the figure itself is compared with the goal.
    """

    name: str
    title: str
    model: str
    shape: Shape
    ours: tuple[str, ...]
    peers: tuple[str, ...]
    metric: Metric
    goal: float

    def reaches(self, ratio: float) -> bool:
        """Whether a ratio is as good as the goal."""
        return ratio <= self.goal if self.metric.lower_is_better else ratio >= self.goal


def _single(precision: str, peer: str, goal: float) -> Row:
    title = f"1 stream, 32 → 128, {precision}"
    ours = (f"octavo-{precision}",)
    return Row(f"single_{precision}", title, SMOLLM2, SINGLE, ours, (peer,), DECODE, goal)


def _roof(precision: str, goal: float) -> Row:
    title = f"1 stream, {precision}: weights read per second / read bandwidth"
    ours = (f"octavo-{precision}",)
    return Row(f"roof_{precision}", title, SMOLLM2, SINGLE, ours, (ROOF,), WEIGHTS, goal)


_BF16 = ("octavo-bf16",)
_VLLM = ("vllm-bf16",)

ROWS = {
    row.name: row
    for row in (
        _single("bf16", "llama.cpp-bf16", 1.2),
        _single("int8", "llama.cpp-Q8_0", 1.5),
        _single("int4", "llama.cpp-Q4_0", 1.6),
        _roof("bf16", 0.80),
        _roof("int8", 0.80),
        _roof("int4", 0.70),
        Row("c8_bf16", "8 streams, 128 → 128, bf16", SMOLLM2, STREAMS_8, _BF16, _VLLM, OUTPUT, 1.8),
        Row(
            "c32_bf16",
            "32 streams, 128 → 128, bf16",
            SMOLLM2,
            STREAMS_32,
            _BF16,
            _VLLM,
            OUTPUT,
            1.8,
        ),
        Row(
            "c8_best",
            "8 streams, 128 → 128, best",
            SMOLLM2,
            STREAMS_8,
            BEST_OURS,
            BEST_PEERS,
            OUTPUT,
            2.5,
        ),
        Row(
            "c32_best",
            "32 streams, 128 → 128, best",
            SMOLLM2,
            STREAMS_32,
            BEST_OURS,
            BEST_PEERS,
            OUTPUT,
            3.0,
        ),
        Row(
            "kernels_c8",
            "8 streams, 128 → 128: kernels' share of CPU time",
            SMOLLM2,
            STREAMS_8,
            ("octavo-int8-kv8",),
            (),
            KERNELS,
            0.85,
        ),
        Row(
            "prefill_bf16",
            "prefill of 1,024 tokens, bf16",
            SMOLLM2,
            PREFILL_1024,
            _BF16,
            _VLLM,
            PREFILL,
            1.3,
        ),
        Row(
            "prefill_int8",
            "prefill of 1,024 tokens, int8",
            SMOLLM2,
            PREFILL_1024,
            ("octavo-int8-kv8",),
            ("openvino-int8",),
            PREFILL,
            1.8,
        ),
        Row(
            "shared_p50",
            "1,000 tokens shared, 32 chats at 8: TTFT p50",
            SMOLLM2,
            SHARED_1000,
            ("octavo-int4-kv8",),
            ("openvino-int4",),
            TTFT_P50,
            0.8,
        ),
        Row(
            "shared_p95",
            "1,000 tokens shared, 32 chats at 8: TTFT p95",
            SMOLLM2,
            SHARED_1000,
            _BF16,
            _VLLM,
            TTFT_P95,
            0.5,
        ),
        Row(
            "qwen_single",
            "1 stream, 32 → 128, int4",
            QWEN,
            SINGLE,
            ("octavo-int4",),
            ("llama.cpp-Q4_0",),
            DECODE,
            1.25,
        ),
        Row(
            "qwen_c8",
            "8 streams, 128 → 128, best",
            QWEN,
            STREAMS_8,
            BEST_OURS,
            ("openvino-int4",),
            OUTPUT,
            2.0,
        ),
    )
}
