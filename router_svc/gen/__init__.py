"""The generated HTTP and gRPC adapter; see protos/generate.sh."""
