#!/usr/bin/env bash
# Regenerates everything that is made from the protos: Python stubs beside each .proto, and the HTTP
# adapter with its OpenAPI document in router_svc/gen. `make check` fails when the result differs
# from what is committed.
set -euo pipefail
cd "$(dirname "$0")"
mapfile -t files < <(find octavo -name '*.proto' | sort)
python -m grpc_tools.protoc -I. --python_out=. --grpc_python_out=. --mypy_out=. --mypy_grpc_out=. "${files[@]}"
if [ -f ../router_svc/codegen/plugin.py ]; then
  python -m grpc_tools.protoc -I. --plugin=protoc-gen-octavo-http=../router_svc/codegen/plugin.py \
    --octavo-http_out=../router_svc/gen octavo/inference/v1/inference.proto
fi
