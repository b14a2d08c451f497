"""Embeddings and scores: batching of inputs that an encoder reads whole."""
