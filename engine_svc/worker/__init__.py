"""Executes plans: arrays for one step, the decoder, the sampler."""
