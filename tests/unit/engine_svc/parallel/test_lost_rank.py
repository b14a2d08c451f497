"""The loss of a rank ends all others, though their main threads wait for it and never see it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

from tests.support.server import free_port


def test_a_killed_rank_ends_ranks_that_wait_for_it_for_ever() -> None:
    port = free_port()
    with ExitStack() as stack:
        ranks = []
        for rank in range(3):
            command = [sys.executable, "-m", "tests.support.stuck_rank", str(rank), "3", str(port)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            stack.enter_context(process)
            stack.callback(process.kill)
            ranks.append(process)
        for process in ranks:
            assert process.stdout.readline() == b"together\n"

        ranks[1].kill()
        codes = [ranks[0].wait(60), ranks[2].wait(60)]

        assert codes == [1, 1]
        assert b"rank 1, another process or on another node, is gone" in ranks[0].stderr.read()
        assert b"rank 2 ends" in ranks[2].stderr.read()
