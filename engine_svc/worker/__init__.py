"""Executes plans: tensors for one step, the decoder, the sampler."""
