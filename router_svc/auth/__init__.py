"""API keys: who may call, over HTTP and gRPC, and as which tenant."""
