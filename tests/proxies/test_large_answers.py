"""Answers beyond the four MiB that a gRPC message may have by default are whole all the same."""

from __future__ import annotations

import grpc
import httpx
from octavo.inference.v1 import inference_pb2 as pb
from octavo.inference.v1 import inference_pb2_grpc

from tests.support.held_service import HeldService

WORD = "assistant"
NUM_WORDS = 500_000


def test_a_large_answer_is_whole_over_http_and_grpc(service: HeldService) -> None:
    url, target = service.routers[0].url, service.routers[0].grpc_target
    (token_id,) = httpx.post(f"{url}/tokenize", json={"prompt": WORD}).json()["tokens"]
    token_ids = [token_id] * NUM_WORDS

    over_http = httpx.post(f"{url}/detokenize", json={"tokens": token_ids}, timeout=60)
    # A client's own cap is four MiB, unless it raises it.
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(target, options) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        over_grpc = stub.Detokenize(pb.DetokenizeRequest(tokens=token_ids), timeout=60)

    assert len(WORD) * NUM_WORDS > 4 << 20
    assert over_http.json()["prompt"] == over_grpc.prompt == WORD * NUM_WORDS
