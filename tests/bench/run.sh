#!/usr/bin/env bash
# Serves MODEL afresh and measures it: tests/bench/run.sh [MODEL] [octavo serve flags …]
# Throughput and latency at 1 to 32 concurrent streams, then the time to first token of a shared
# 1,000-token prefix with the prefix cache on and off. Results go to bench/ as JSON and PNG.
set -euo pipefail
cd "$(dirname "$0")/../.."
model=${1:-smollm2}
shift || true
octavo=.venv/bin/octavo
out=bench
port=8765
mkdir -p "$out"

# with_server NAME FLAGS… -- COMMAND…: runs the command while a server with these flags is up.
with_server() {
  local name=$1 flags=()
  shift
  while [ "$1" != -- ]; do flags+=("$1"); shift; done
  shift
  "$octavo" serve "$model" --port "$port" --grpc-port $((port + 1)) "${flags[@]}" 2>"$out/$name.log" &
  local server=$!
  trap 'kill $server 2>/dev/null' EXIT
  until curl -sf "http://127.0.0.1:$port/health" >/dev/null; do
    kill -0 $server || { cat "$out/$name.log"; exit 1; }
    sleep 0.2
  done
  "$@"
  kill $server && wait $server
  trap - EXIT
}

bench() {
  "$octavo" bench --url "http://127.0.0.1:$port/v1" "$@"
}

with_server plain "$@" -- bench --concurrency 1,4,8,16,32 --prompt-tokens 128 --output-tokens 128 \
  --json "$out/concurrency.json" --plot "$out/concurrency.png"
for cache in enable no-enable; do
  with_server "prefix-$cache" "--$cache-prefix-caching" "$@" -- bench --concurrency 1 --requests 8 \
    --shared-prefix-tokens 1000 --prompt-tokens 32 --output-tokens 8 --warm-up 2 \
    --title "shared 1,000-token prefix, --$cache-prefix-caching" --json "$out/prefix-$cache.json"
done
.venv/bin/python tests/bench/ratios.py "$out"
