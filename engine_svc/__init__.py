"""The stateful service: scheduler, KV cache, executor, model runner, sampler."""
