"""What meshes and tools expect of the router's gRPC port: health, reflection, channelz."""

from __future__ import annotations

import grpc
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from tests.support.server import RunningServer

SERVICE = "octavo.inference.v1.Inference"


def test_health_says_serving_for_the_server_and_its_service(server: RunningServer) -> None:
    with grpc.insecure_channel(server.grpc_target) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        answers = [stub.Check(health_pb2.HealthCheckRequest(service=s)) for s in ("", SERVICE)]

    assert [a.status for a in answers] == [health_pb2.HealthCheckResponse.SERVING] * 2


def test_reflection_describes_the_service(server: RunningServer) -> None:
    with grpc.insecure_channel(server.grpc_target) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)

        services = database.get_services()
        file = database.FindFileContainingSymbol(SERVICE)

    assert SERVICE in services
    assert "CreateChatCompletion" in [method.name for method in file.service[0].method]


def test_channelz_shows_the_server(server: RunningServer) -> None:
    with grpc.insecure_channel(server.grpc_target) as channel:
        stub = channelz_pb2_grpc.ChannelzStub(channel)

        answer = stub.GetServers(channelz_pb2.GetServersRequest())

    assert answer.server[0].data.calls_started > 0
