"""Quantised checkpoints in the layouts that Hugging Face's hub has."""
