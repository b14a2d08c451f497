import pytest

from engine_svc.sampling_params import SamplingParams
from engine_svc.scheduling.block_pool import IntegrityError
from engine_svc.scheduling.kv_cache_manager import KVCacheManager
from engine_svc.scheduling.request import Request, RequestStatus

BLOCK = 4


@pytest.fixture
def kv() -> KVCacheManager:
    return KVCacheManager(num_blocks=8, block_size=BLOCK)


def make(key: int, tokens, *, salt="", lora="", **sampling) -> Request:
    params = SamplingParams(**sampling)
    return Request(key, "r", 0, tuple(tokens), params, 0.0, cache_salt=salt, lora=lora)


def compute(kv: KVCacheManager, request: Request, num_tokens: int | None = None) -> None:
    """Does what a step does: blocks first, then the tokens, then others may find them."""
    num_tokens = request.num_tokens if num_tokens is None else num_tokens
    assert kv.grow(request, num_tokens) is not None
    request.num_computed_tokens = num_tokens
    kv.publish(request)


def start(kv: KVCacheManager, request: Request) -> int:
    """Admits a request; returns how many of its tokens were cached."""
    request.num_computed_tokens = len(kv.admit(request)) * BLOCK
    request.status = RequestStatus.RUNNING
    return request.num_computed_tokens


def run_once(kv: KVCacheManager, request: Request) -> int:
    cached = start(kv, request)
    compute(kv, request)
    kv.free(request)
    return cached


def test_a_table_grows_block_by_block(kv):
    request = make(0, range(9))
    kv.admit(request)

    assert len(kv.grow(request, 1)) == 1
    assert kv.grow(request, 4) == ()
    assert len(kv.grow(request, 9)) == 2
    assert kv.num_free_blocks == 5


def test_growth_beyond_the_pool_changes_nothing(kv):
    request = make(0, range(40))
    kv.admit(request)

    assert kv.grow(request, 8 * BLOCK + 1) is None
    assert kv.num_free_blocks == 8


def test_a_second_request_finds_the_full_blocks_of_the_first(kv):
    prompt = range(3 * BLOCK + 2)

    assert run_once(kv, make(0, prompt)) == 0
    assert run_once(kv, make(1, prompt)) == 3 * BLOCK
    assert run_once(kv, make(2, [*range(2 * BLOCK), 99, 98, 97])) == 2 * BLOCK


def test_at_least_one_token_is_always_computed(kv):
    prompt = range(2 * BLOCK)
    run_once(kv, make(0, prompt))

    assert run_once(kv, make(1, prompt)) == BLOCK


def test_blocks_of_output_are_found_by_the_next_turn(kv):
    first = make(0, range(3))
    start(kv, first)
    first.output_token_ids += [50, 51, 52, 53, 54, 55]
    compute(kv, first)
    kv.free(first)

    assert run_once(kv, make(1, [0, 1, 2, 50, 51, 52, 53, 54, 55, 7])) == 2 * BLOCK


@pytest.mark.parametrize("other", [{"salt": "b"}, {"lora": "x"}, {"salt": "ax", "lora": ""}])
def test_salt_and_adapter_separate_caches(kv, other):
    run_once(kv, make(0, range(9), salt="a"))

    assert run_once(kv, make(1, range(9), **other)) == 0
    assert run_once(kv, make(2, range(9), salt="a")) == 2 * BLOCK


def test_the_same_block_after_another_start_is_another_block(kv):
    run_once(kv, make(0, [1, 1, 1, 1, 5, 6, 7, 8, 9]))

    assert run_once(kv, make(1, [2, 2, 2, 2, 5, 6, 7, 8, 9])) == 0


def test_a_block_is_found_only_once_its_tokens_are_computed(kv):
    first, second = make(0, range(9)), make(1, range(9))
    kv.admit(first)
    kv.grow(first, 9)

    assert kv.probe(second).num_cached_blocks == 0
    compute(kv, first, 5)
    assert kv.probe(second).num_cached_blocks == 1


def test_a_probe_tells_that_the_next_block_is_being_computed(kv):
    first, second, stranger = make(0, range(9)), make(1, range(9)), make(2, range(50, 59))
    start(kv, first)

    assert kv.probe(second).being_computed
    assert not kv.probe(stranger).being_computed
    compute(kv, first, BLOCK)
    assert kv.probe(second).being_computed  # the second block now
    compute(kv, first, 2 * BLOCK)
    assert not kv.probe(second).being_computed


def test_nobody_waits_for_a_request_that_left(kv):
    first, second = make(0, range(9)), make(1, range(9))
    start(kv, first)

    kv.free(first)

    assert not kv.probe(second).being_computed


def test_nobody_waits_for_the_block_that_it_must_compute_itself(kv):
    first, second = make(0, range(BLOCK)), make(1, range(BLOCK))
    start(kv, first)

    assert not kv.probe(second).being_computed


def test_asked_prompt_logprobs_keep_the_positions_before_them_out_of_the_cache(kv):
    prompt = range(3 * BLOCK + 1)
    run_once(kv, make(0, prompt))

    # position 5 is predicted by position 4, the first of the second block
    assert run_once(kv, make(1, prompt, prompt_logprobs=0, prompt_logprobs_from=5)) == BLOCK
    assert run_once(kv, make(2, prompt, prompt_logprobs=0, prompt_logprobs_from=4)) == 0
    assert run_once(kv, make(3, prompt, prompt_logprobs=0)) == 0


def test_shared_blocks_need_no_free_ones_but_kept_blocks_do(kv):
    first, second = make(0, range(9)), make(1, range(9))
    start(kv, first)
    compute(kv, first)
    assert kv.num_new_blocks(second, kv.probe(second)) == 1

    kv.free(first)
    assert kv.num_new_blocks(second, kv.probe(second)) == 3


def test_a_chain_is_evicted_from_its_tail(kv):
    run_once(kv, make(0, range(4 * BLOCK)))
    filler = make(1, range(100, 100 + 6 * BLOCK))
    start(kv, filler)

    kv.grow(filler, 6 * BLOCK)  # four blank blocks, then two that were kept

    assert kv.probe(make(2, range(4 * BLOCK + 1))).num_cached_blocks == 2


def test_blocks_of_a_distrusted_request_are_not_found_again(kv):
    request = make(0, range(9))
    start(kv, request)
    compute(kv, request)

    kv.free(request, distrust=True)

    assert kv.probe(make(1, range(9))).num_cached_blocks == 0
    assert kv.num_free_blocks == 8


def test_integrity_holds_over_a_life_and_names_what_broke(kv):
    request = make(0, range(9))
    start(kv, request)
    compute(kv, request)
    kv.check_integrity({0: request})

    with pytest.raises(IntegrityError, match=r"requests \[0\] either run without blocks"):
        kv.check_integrity({})
    request.num_computed_tokens = 13
    with pytest.raises(IntegrityError, match="computed 13 tokens but has only 3 blocks of 4"):
        kv.check_integrity({0: request})


def test_integrity_finds_a_block_offered_under_the_wrong_hash(kv):
    request = make(0, range(9))
    start(kv, request)
    compute(kv, request)
    request.block_hashes.reverse()

    with pytest.raises(IntegrityError, match="request 0: block 0 is found under another's hash"):
        kv.check_integrity({0: request})


def test_a_block_has_at_least_one_token():
    with pytest.raises(ValueError, match="block_size must be at least 1, got 0"):
        KVCacheManager(num_blocks=8, block_size=0)
