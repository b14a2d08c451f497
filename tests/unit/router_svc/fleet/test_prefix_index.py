"""What a router knows of engines' prefix caches."""

from __future__ import annotations

from router_svc.fleet.prefix_index import PrefixIndex, prompt_hashes

PROMPT = list(range(100))
HASHES = prompt_hashes(PROMPT, 16, "")


def index_with(*names: bytes) -> PrefixIndex:
    index = PrefixIndex()
    index.apply("e", 1, snapshot=True, stored=b"".join(names), removed=b"")
    return index


def test_a_prompt_is_named_block_by_block_but_for_its_last_token() -> None:
    assert len(HASHES) == 6
    assert len(prompt_hashes(PROMPT[:96], 16, "")) == 5
    assert prompt_hashes(PROMPT, 16, "salt") != HASHES


def test_only_leading_blocks_count() -> None:
    assert index_with(*HASHES[:2], HASHES[3]).num_cached(HASHES) == 2


def test_changes_follow_each_other() -> None:
    index = index_with(*HASHES[:2])

    assert index.apply("e", 2, snapshot=False, stored=HASHES[2], removed=HASHES[0])
    assert index.num_cached(HASHES) == 0
    assert index.apply("e", 3, snapshot=False, stored=HASHES[0], removed=b"")
    assert index.num_cached(HASHES) == 3


def test_a_gap_or_another_epoch_is_not_applied() -> None:
    index = index_with(*HASHES[:1])

    assert not index.apply("e", 3, snapshot=False, stored=HASHES[1], removed=b"")
    assert not index.apply("f", 2, snapshot=False, stored=HASHES[1], removed=b"")
    assert index.num_cached(HASHES) == 1


def test_what_was_sent_a_moment_ago_counts_as_cached_until_it_should_be_there() -> None:
    now = [0.0]
    index = PrefixIndex(lambda: now[0])
    index.expect(HASHES[:4])

    assert index.num_cached(HASHES) == 4
    now[0] = 31.0
    assert index.num_cached(HASHES) == 0


def test_a_new_process_has_nothing_of_what_the_old_one_was_sent() -> None:
    index = index_with()
    index.expect(HASHES)

    index.apply("another", 1, snapshot=True, stored=b"", removed=b"")

    assert index.num_cached(HASHES) == 0
