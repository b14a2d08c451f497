"""Each operation in plain torch: its definition, the measure of fast kernels, and the fallback.

Results are batch-invariant here too: a row depends on its own request's tokens only, bit for bit.
"""
