from collections import Counter

import pytest

from engine_svc.scheduling.block_pool import BlockPool, IntegrityError

A, B, C = b"hash a", b"hash b", b"hash c"


def test_allocates_all_or_nothing():
    pool = BlockPool(3)

    blocks = pool.allocate(2)

    assert len(set(blocks)) == 2
    assert pool.allocate(2) is None
    assert pool.num_free == 1


def test_a_pool_has_at_least_one_block():
    with pytest.raises(ValueError, match="num_blocks must be at least 1, got 0"):
        BlockPool(0)


def test_a_released_block_with_a_hash_stays_findable_until_it_is_evicted():
    pool = BlockPool(1)
    (block,) = pool.allocate(1)
    pool.publish(block, A)

    pool.release([block])
    assert pool.find(A) == block
    assert pool.num_free == 1

    pool.allocate(1)
    assert pool.find(A) is None


def test_a_found_block_can_be_shared_and_is_free_after_its_last_user():
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    pool.publish(block, A)
    pool.acquire(block)

    pool.release([block])
    assert not pool.is_free(block)
    pool.release([block])
    assert pool.is_free(block)
    pool.acquire(block)  # from the free list
    assert pool.num_free == 1


def test_blank_blocks_are_taken_before_kept_ones_and_those_in_order_of_last_use():
    pool = BlockPool(4)
    a, b, c, blank = pool.allocate(4)
    for block, block_hash in ((a, A), (b, B), (c, C)):
        pool.publish(block, block_hash)

    pool.release([b])
    pool.release([a])
    pool.release([c])
    pool.release([blank])
    pool.acquire(b)
    pool.release([b])  # used again, so now the most recent

    assert [pool.allocate(1) for _ in range(4)] == [[blank], [a], [c], [b]]


def test_of_two_blocks_with_the_same_content_the_first_stays_findable():
    pool = BlockPool(2)
    first, second = pool.allocate(2)
    pool.publish(first, A)

    pool.publish(second, A)

    assert pool.find(A) == first
    assert pool.hash_of(second) is None
    pool.check_integrity(Counter({first: 1, second: 1}))


def test_flush_forgets_kept_blocks_and_spares_used_ones():
    pool = BlockPool(3)
    kept, used, _ = pool.allocate(3)
    pool.publish(kept, A)
    pool.publish(used, B)
    pool.release([kept])

    assert pool.flush() == 1

    assert pool.find(A) is None
    assert pool.find(B) == used
    assert pool.num_findable == 1


def test_an_unpublished_block_is_no_longer_found():
    pool = BlockPool(1)
    (block,) = pool.allocate(1)
    pool.publish(block, A)

    pool.unpublish(block)

    assert pool.find(A) is None


def test_integrity_names_a_leaked_block_and_both_counts():
    pool = BlockPool(2)
    pool.allocate(1)

    with pytest.raises(IntegrityError, match="block 0 has 1 references, its users hold 0"):
        pool.check_integrity(Counter())


def test_integrity_finds_a_block_that_is_used_and_free():
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    pool._free[block] = None

    with pytest.raises(IntegrityError, match="block 0 with 1 references is in the free list"):
        pool.check_integrity(Counter({block: 1}))


def test_integrity_finds_a_hash_that_leads_astray():
    pool = BlockPool(2)
    first, second = pool.allocate(2)
    pool.publish(first, A)
    pool._by_hash[A] = second

    with pytest.raises(IntegrityError, match="block 0 has a hash that finds block 1"):
        pool.check_integrity(Counter({first: 1, second: 1}))
