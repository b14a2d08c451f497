#!/usr/bin/env bash
# Regenerates everything that is made from the protos: Python stubs beside each .proto, and the HTTP
# adapter with its OpenAPI document in router_svc/gen, and docs/api.md. With --check it changes nothing and fails
# when the result differs from what is there.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
if [ -x "$root/.venv/bin/python" ]; then
  PATH="$root/.venv/bin:$PATH"
fi

# generate STUBS GEN DOCS: writes the stubs below STUBS, the adapter into GEN, api.md into DOCS.
generate() {
  local files
  cd "$root/protos"
  mapfile -t files < <(find octavo -name '*.proto' | LC_ALL=C sort)
  # The plugin reads its own options through their stub, so the stubs come first.
  python -m grpc_tools.protoc -I. --python_out="$1" --grpc_python_out="$1" \
    --mypy_out=quiet:"$1" --mypy_grpc_out=quiet:"$1" "${files[@]}"
  PYTHONPATH="$root/protos:$root" python -m grpc_tools.protoc -I. \
    --plugin=protoc-gen-octavo-http="$root/router_svc/codegen/plugin.py" \
    --octavo-http_out="$2" octavo/inference/v1/*.proto
  mv "$2/api.md" "$3/api.md"
  ruff format --quiet --config "$root/pyproject.toml" "$2"/*.py
}

# listing DIRECTORY: the generated files below it with their checksums.
listing() {
  (cd "$1" && find . -name __pycache__ -prune -o -type f -name "$2" -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum)
}

if [ "${1:-}" != "--check" ]; then
  generate "$root/protos" "$root/router_svc/gen" "$root/docs"
  exit
fi

fresh="$(mktemp -d)"
trap 'rm -rf "$fresh"' EXIT
mkdir "$fresh/stubs" "$fresh/gen" "$fresh/docs"
generate "$fresh/stubs" "$fresh/gen" "$fresh/docs"
if diff <(listing "$root/protos" '*_pb2*.py*') <(listing "$fresh/stubs" '*_pb2*.py*') \
  && diff <(listing "$root/router_svc/gen" '*.*') <(listing "$fresh/gen" '*.*') \
  && diff "$root/docs/api.md" "$fresh/docs/api.md"; then
  exit
fi
echo "Generated files are stale: run protos/generate.sh and commit the result." >&2
exit 1
