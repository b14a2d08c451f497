# Generated from octavo/inference/v1/inference.proto by router_svc/codegen; do not edit.
"""The generated HTTP and gRPC adapter; see protos/generate.sh."""
