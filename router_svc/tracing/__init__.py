"""What is told of a call besides its answer: spans and the gen_ai metrics (docs/tracing.md)."""
