"""Asks an engine on this host for its health over TLS, which Kubernetes' own gRPC probe cannot."""

import os
import sys
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

address, server_name, seconds = sys.argv[1:]
files = (os.environ[f"OCTAVO_SSL_{name}"] for name in ("CA_CERTS", "KEYFILE", "CERTFILE"))
credentials = grpc.ssl_channel_credentials(*(Path(file).read_bytes() for file in files))
options = [("grpc.ssl_target_name_override", server_name)]
with grpc.secure_channel(address, credentials, options) as channel:
    try:
        answer = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(), timeout=float(seconds)
        )
    except grpc.RpcError as error:
        sys.exit(f"{error.code().name}: {error.details()}")
if answer.status != health_pb2.HealthCheckResponse.SERVING:
    sys.exit(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
