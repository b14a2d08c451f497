"""Tensor parallelism: one engine on several processes, each with a part of every matrix.

engine's process, rank 0            rank 1 … n - 1
scheduler, sampler, gRPC            nothing of these
LeadingDecoder ── step's arrays ──▶ follower's loop
Decoder ◀───── sums, gathers ─────▶ Decoder
"""
