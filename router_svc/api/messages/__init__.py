"""Anthropic's Messages API, over the same conversations as chat."""
