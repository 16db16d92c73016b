"""XXH64: both halves against the xxhash package."""

from __future__ import annotations

from types import ModuleType

import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.base import xxh64 as compiled
from twins import xxh64 as reference

both_halves = pytest.mark.parametrize("kernel", [compiled, reference], ids=["compiled", "reference"])
SEEDS = st.one_of(st.sampled_from([0, 1, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1))


@both_halves
def test_every_length_up_to_several_stripes_agrees_with_the_package(kernel: ModuleType) -> None:
    data = bytes(n * 37 % 251 for n in range(200))
    for size in range(len(data)):
        for seed in (0, 1, 2**64 - 1):
            assert kernel.xxh64_of(data[:size], seed) == xxhash.xxh64_intdigest(data[:size], seed)


@both_halves
@given(data=st.binary(max_size=300), seed=SEEDS)
@example(data=b"", seed=0)
@settings(max_examples=100, deadline=None)
def test_any_bytes_and_any_seed_agree_with_the_package(kernel: ModuleType, data: bytes, seed: int) -> None:
    assert kernel.xxh64_of(data, seed) == xxhash.xxh64_intdigest(data, seed)


def test_a_large_buffer_agrees_with_the_package_at_any_alignment() -> None:
    data = bytes(range(256)) * 4096
    for start in range(9):
        view = memoryview(data)[start:]
        assert compiled.xxh64_of(view, 7) == xxhash.xxh64_intdigest(view, 7)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_that_is_no_u64_is_refused(seed: int) -> None:
    with pytest.raises(OverflowError):
        compiled.xxh64_of(b"a", seed)


@given(st.binary(max_size=300))
def test_an_id_is_remembered_by_two_hashes(msg_id: bytes) -> None:
    wanted = xxhash.xxh64_intdigest(msg_id, 0).to_bytes(8, "little") + xxhash.xxh64_intdigest(msg_id, 1).to_bytes(
        8, "little"
    )
    assert compiled.hash_id(msg_id) == reference.hash_id(msg_id) == wanted
