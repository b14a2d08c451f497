"""Clients that leave a batch at any token: those who stay must not notice, and nothing may leak."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from tests.chaos.campaign import check_books, solo_answers
from tests.chaos.client import Client, Delivery
from tests.chaos.ledger import Ledger
from tests.chaos.processes import running_cluster
from tests.chaos.requests import catalogue

NUM_STREAMS = 8
_LONGEST_STAY = 40  # events


async def leave_at_any_token(
    model: Path, scratch: Path, *, rounds: int, seed: int
) -> tuple[Ledger, list[str]]:
    """Rounds of eight streams of all kinds, of which one to seven leave: what came of them."""
    rng = random.Random(seed)
    wanted = catalogue(seed, 40)
    ledger = Ledger()
    async with running_cluster(model, scratch, num_engines=1) as cluster:
        solo = await solo_answers(cluster.routers[0], wanted, ledger)
        async with Client(cluster.routers, solo, ledger) as client:
            for _ in range(rounds):
                num_leaving = rng.randint(1, NUM_STREAMS - 1)
                stays = [rng.randint(1, _LONGEST_STAY) for _ in range(num_leaving)]
                ways = [Delivery(stream=True, leave_after=stay) for stay in stays]
                ways += [Delivery(stream=True)] * (NUM_STREAMS - num_leaving)
                calls = (client.send(rng.choice(wanted), how, rng) for how in ways)
                await asyncio.gather(*calls)
        return ledger, await check_books(cluster, ledger)
