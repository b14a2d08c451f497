"""Other numbers of rows need no other code: nothing is compiled while a GPU serves, and no row gets
other bits by it."""

from __future__ import annotations

import compile_checks
import pytest
import variants_worker

# Around those that Triton treats by themselves, 1 and multiples of 16, and around tiles.
ROWS = (1, 2, 7, 15, 16, 17, 32, 48, 63, 64, 65, 128, 129, 160, 300)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # One for each tile of rows; few rows take segments of columns apart.
        ("dense", {"_segment_products": 2, "_add_segments": 1, "_gemm": 1}),
        ("four bits", {"_w4a16": 3, "_add_segments": 1}),
        ("by row", {"_rms_norm": 1, "_gated_blocks": 1, "_quantise_rows": 1, "_take": 1}),
        # Programs share a long row's keys where rows are few.
        ("attention", {"_norm_rope_write": 1, "_attend": 2, "fold_partials": 1}),
        ("draws", {"_block_maxima": 1, "_block_sums": 2, "_find_cuts": 1, "_pick": 1}),
    ],
)
def test_a_kernel_has_the_same_code_for_any_number_of_rows(
    kind: str, expected: dict[str, int]
) -> None:
    found = compile_checks.in_worker(variants_worker.variants, kind, ROWS)

    assert found == expected
