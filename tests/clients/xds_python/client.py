"""A gRPC client that calls `xds:///octavo`, with its control plane in the same process.

Reads a JSON object a line, and answers each with one:

    {"endpoints": ["host:port", …]}   from now on these are the routers
    {"calls": 8}                      makes so many calls, one after another, on one channel
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import grpc
from control_plane import NAME, ControlPlane
from octavo.inference.v1 import inference_pb2 as pb
from octavo.inference.v1 import inference_pb2_grpc


def bootstrap(server: str) -> str:
    """What gRPC has to know of its control plane; usually a file, named by GRPC_XDS_BOOTSTRAP."""
    plane = {"server_uri": server, "channel_creds": [{"type": "insecure"}]}
    plane["server_features"] = ["xds_v3"]
    return json.dumps({"xds_servers": [plane], "node": {"id": "client"}})


async def main() -> None:
    plane = ControlPlane()
    os.environ["GRPC_XDS_BOOTSTRAP_CONFIG"] = bootstrap(await plane.start())
    async with grpc.aio.insecure_channel(f"xds:///{NAME}") as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        while line := await asyncio.to_thread(sys.stdin.readline):
            command = json.loads(line)
            if "endpoints" in command:
                plane.set_endpoints(command["endpoints"])
            for _ in range(command.get("calls", 0)):
                request = pb.CreateCompletionRequest(prompt=pb.Prompt(text="hi"), max_tokens=1)
                await stub.CreateCompletion(request, timeout=20, wait_for_ready=True)
            print(json.dumps({"done": command}), flush=True)


asyncio.run(main())
