"""Schemathesis against one server, and what must hold of the server afterwards."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.clients.environment import client_python
from tests.support.processes import engine_of
from tests.support.server import RunningServer

HERE = Path(__file__).parent
SCRATCH = HERE.parents[1] / "build" / "fuzz"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
    "one_error_shape",
    "stream_conforms",
)


@dataclass(frozen=True)
class Campaign:
    """What is sent: so many examples to each operation of these paths (all of them if empty).

    With `coverage`, also the edges of every field's limits, some hundred bodies for an operation.
    """

    examples: int
    seed: int
    paths: Sequence[str] = ()
    coverage: bool = True


@dataclass(frozen=True)
class Outcome:
    """What came of a campaign. `problems` is empty if all is well."""

    problems: list[str]
    answers: Counter[tuple[str, int]]  # by route and status

    def table(self) -> str:
        """The number of answers by route, and how many of them had which status."""
        lines = []
        for route in sorted({route for route, _ in self.answers}):
            statuses = {s: n for (r, s), n in sorted(self.answers.items()) if r == route}
            shares = "  ".join(f"{status}: {count}" for status, count in statuses.items())
            lines.append(f"{route or '(no route)':32} {sum(statuses.values()):6}   {shares}")
        return "\n".join(lines)


def run_campaign(server: RunningServer, campaign: Campaign) -> Outcome:
    """Sends it all, with a schemathesis for each core, and looks at the server afterwards."""
    engine, before = engine_of(server).pid, _answers(server)
    document = httpx.get(f"{server.url}/openapi.json").json()
    paths = campaign.paths or list(document["paths"])
    cores = os.cpu_count() or 1
    # Each takes seconds to start: few for a sample, but a line of progress for each path otherwise.
    shares = [[path] for path in paths]
    if not campaign.coverage:
        shares = [share for i in range(cores) if (share := list(paths[i::cores]))]
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(cores) as pool:
        oks = list(pool.map(lambda share: _fuzz(server, campaign, share), shares))

    problems = [
        f"failures with {' '.join(share)}" for share, ok in zip(shares, oks, strict=True) if not ok
    ]
    if server.process.poll() is not None:
        return Outcome([*problems, "the server exited"], Counter())
    if engine_of(server).pid != engine:
        problems.append("the engine was started again")
    if not server.wait_until(server.idle):
        problems.append("requests or blocks are left over")
    if "Traceback" in server.log.read_text():
        problems.append("an exception that nobody expected is in the server's log")
    answers = _answers(server) - before
    for path in paths:
        sent = sum(count for (route, _), count in answers.items() if route == path)
        if "post" in document["paths"][path] and sent < campaign.examples:
            problems.append(f"{path} was sent {sent} bodies only")
    return Outcome(problems, answers)


def _fuzz(server: RunningServer, campaign: Campaign, paths: Sequence[str]) -> bool:
    """Fuzzes some paths and prints a line, and the report if anything was found."""
    phases = "coverage,fuzzing" if campaign.coverage else "fuzzing"
    command = [str(client_python("schemathesis")), "-m", "schemathesis.cli", "run"]
    command += [f"{server.url}/openapi.json", f"--phases={phases}"]
    command += [f"--include-path={path}" for path in paths]
    command += [f"--max-examples={campaign.examples}", f"--seed={campaign.seed}"]
    command += [f"--checks={','.join(CHECKS)}", "--continue-on-failure", "--request-timeout=60"]
    command += ["--suppress-health-check=all", "--warnings=off"]
    hooks = {"SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE)}
    begin = time.monotonic()
    result = subprocess.run(
        command, cwd=SCRATCH, env=os.environ | hooks, capture_output=True, text=True, check=False
    )
    passed = result.returncode == 0
    verdict = "ok" if passed else f"FAILED\n{result.stdout}{result.stderr}\n"
    print(f"{' '.join(paths):32} {time.monotonic() - begin:.0f} s: {verdict}", flush=True)
    return passed


def _answers(server: RunningServer) -> Counter[tuple[str, int]]:
    """Answers so far by route and status."""
    text = httpx.get(f"{server.url}/metrics").text
    return Counter(
        {
            (sample.labels["route"], int(sample.labels["status"])): int(sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "octavo_router_http_answers_total"
        }
    )
