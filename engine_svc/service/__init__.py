"""The engine as a gRPC service: requests in, events out, health and metrics."""
