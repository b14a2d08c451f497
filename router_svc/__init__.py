"""The stateless service: HTTP and gRPC in, text to tokens and back, balancing over engines."""
