"""The generator: fresh everywhere, an error when the system fails, a seed only through testing."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from dpmicro_native import _core, mask, testing
from dpmicro_native.errors import GeneratorError

ALPHA = 1e-6
TOP = 2**64


def run(program: str, **environment: str) -> str:
    """Run a program in a fresh interpreter: forking is only clean where no thread was started."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_words_are_never_repeated_between_calls_chunks_and_threads() -> None:
    with ThreadPoolExecutor(8) as pool:
        drawn = [_core.random_words(50_000)]
        drawn += pool.map(lambda _: _core.random_words(1000, threads=1), range(64))
        drawn += pool.map(lambda _: _core.random_words(20_000, threads=3), range(8))
    words = np.concatenate(drawn)
    # Among 3e5 words of 64 bits a chance repetition has probability 2e-9.
    assert len(np.unique(words)) == len(words) == 50_000 + 64_000 + 160_000


def test_bits_are_balanced() -> None:
    words = _core.random_words(200_000)
    ones = np.array([((words >> np.uint64(b)) & np.uint64(1)).sum() for b in range(64)], dtype=float)
    z = (ones - 100_000) / np.sqrt(200_000 / 4)
    assert stats.chi2.sf((z**2).sum(), 64) > ALPHA


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_parent_and_child_draw_different_numbers_after_fork() -> None:
    out = run(
        """
        import os, sys
        from dpmicro_native import _core
        _core.random_words(5, threads=1)
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, _core.random_words(16, threads=1).tobytes())
            grandchild = os.fork()
            if grandchild == 0:
                os.write(write, _core.random_words(16, threads=1).tobytes())
                os._exit(0)
            os.waitpid(grandchild, 0)
            os._exit(0)
        os.wait()
        own = _core.random_words(16, threads=1).tobytes()
        both = os.read(read, 256)
        words = [block[i:i + 8] for block in (own, both[:128], both[128:]) for i in range(0, 128, 8)]
        print(len(words), len(set(words)))
        """
    )
    assert out.split()[-2:] == ["48", "48"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_in_the_middle_throws_the_buffered_words_away() -> None:
    """Random orders are drawn from the end on; the first look at the callback comes at a multiple of 2^16."""
    out = run(
        """
        import os
        import numpy as np
        from dpmicro_native import _core
        place = 3 * 2**16 - 1   # drawn before the fork: the entries from here on
        read, write = os.pipe()
        children = []
        order = _core.permutation(200_000, progress=lambda share: children or children.append(os.fork()))
        if children[0] == 0:
            os.write(write, order[place - 200 : place + 200].tobytes())
            os._exit(0)
        os.wait()
        own, other = order[place - 200 : place + 200], np.frombuffer(os.read(read, 3200), np.int64)
        print((own == other)[:200].sum(), (own == other)[200:].sum())
        """
    )
    same_after, same_before = map(int, out.split()[-2:])
    assert same_before == 200
    assert same_after < 10


SHIM = """
#define _GNU_SOURCE
#include <errno.h>
#include <sys/types.h>
#include <sys/syscall.h>
#include <unistd.h>
int mode = 0; /* 0: as always; 1: short reads and interruptions; 2: fails */
ssize_t getrandom(void *buffer, size_t size, unsigned flags) {
  static int calls = 0;
  if (mode == 2) { errno = EIO; return -1; }
  if (mode == 1) {
    if (++calls % 2) { errno = EINTR; return -1; }
    if (size > 7) size = 7;
  }
  return syscall(SYS_getrandom, buffer, size, flags);
}
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="replaces getrandom(2)")
def test_a_failing_system_generator_is_an_error_and_short_reads_are_completed(tmp_path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the failing generator with")
    source, library = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    out = run(
        """
        import ctypes, os
        from dpmicro_native import _core, errors, mask
        mode = ctypes.c_int.in_dll(ctypes.CDLL(os.environ["LD_PRELOAD"]), "mode")
        mode.value = 1
        words = _core.random_words(100, threads=1)
        print(len(set(words.tolist())), (words >> 32).min() > 0)
        mode.value = 2
        for draw in (
            lambda: _core.random_words(5000, threads=1),
            lambda: _core.random_words(50000, threads=2),
            lambda: mask.discrete_laplace(10, 100000),
        ):
            try:
                draw()
            except errors.GeneratorError as error:
                print("GeneratorError")
        mode.value = 0
        print(len(mask.discrete_laplace(10, 10)))
        """,
        LD_PRELOAD=str(library),
    )
    assert out.splitlines()[-5:] == ["100 True", *["GeneratorError"] * 3, "10"]


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 6, 1000, 2**32 + 1, 2**63 + 1, TOP - 1])
def test_below_hits_every_value_by_equally_many_words(bound: int) -> None:
    for value in sorted({0, 1, bound // 2, bound - 1} - {bound}):
        # Words whose product with the bound lies in [value 2^64 + 2^64 mod bound, (value + 1) 2^64).
        first = -(-(value * TOP + TOP % bound) // bound)
        last = -(-((value + 1) * TOP) // bound) - 1
        assert last - first + 1 == TOP // bound
        assert _core.scripted_below([first], bound) == value
        assert _core.scripted_below([last], bound) == value
        for outside in (first - 1, last + 1):
            if not 0 <= outside < TOP:
                continue
            try:
                assert _core.scripted_below([outside], bound) != value
            except GeneratorError:  # rejected: another word was asked for
                assert _core.scripted_below([outside, first], bound) == value


def test_every_order_is_equally_likely() -> None:
    counts = dict.fromkeys(permutations(range(4)), 0)
    for _ in range(24_000):
        counts[tuple(mask.permutation(4).tolist())] += 1
    assert stats.chisquare(list(counts.values())).pvalue > ALPHA
    assert mask.permutation(0).tolist() == []
    assert sorted(mask.permutation(100_000).tolist()) == list(range(100_000))


def test_chacha20_matches_the_published_vector() -> None:
    """RFC 8439, appendix A.1, test vectors 1 and 2: key, nonce zero; blocks 0 and 1."""
    _core.push_seed(bytes(32))
    try:
        stream = _core.random_words(16, threads=1).tobytes().hex()
    finally:
        _core.pop_seed()
    assert stream.startswith("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    assert stream[128:].startswith("9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed")


def test_a_seed_repeats_itself_for_every_number_of_threads() -> None:
    def draw(seed: int, threads: int) -> list[np.ndarray]:
        with testing.seeded(seed):
            return [
                mask.discrete_laplace("7/3", 60_000, threads=threads),
                mask.discrete_laplace("7/3", 60_000, threads=threads),
                mask.poisson_sample(60_000, 0.3, threads=threads),
                mask.permutation(1000),
            ]

    once = draw(1, 1)
    for threads in (2, 3, 0):
        for a, b in zip(once, draw(1, threads), strict=True):
            np.testing.assert_array_equal(a, b)
    assert not np.array_equal(once[0], once[1])  # a second call goes on, it does not repeat the first
    assert not np.array_equal(once[0][:16384], once[0][16384:32768])  # nor does a second chunk
    assert not np.array_equal(once[0], draw(2, 1)[0])


def test_a_seed_stays_on_its_thread_and_in_its_block() -> None:
    assert not testing.is_seeded()
    with testing.seeded(1):
        assert testing.is_seeded()
        with testing.seeded(2):
            inner = _core.random_words(4)
        outer = _core.random_words(4)
        with ThreadPoolExecutor(1) as pool:
            assert not pool.submit(testing.is_seeded).result()
            elsewhere = pool.submit(_core.random_words, 4).result()
    assert not testing.is_seeded()
    with testing.seeded(1):
        np.testing.assert_array_equal(_core.random_words(4), outer)
        assert not np.array_equal(outer, elsewhere)
    with testing.seeded(2):
        np.testing.assert_array_equal(_core.random_words(4), inner)
    with pytest.raises(RuntimeError, match="inside"), testing.seeded(3):
        raise RuntimeError("inside")
    assert not testing.is_seeded()
    assert not np.array_equal(_core.random_words(4), _core.random_words(4))


def test_no_public_function_takes_a_seed() -> None:
    for name in mask.__all__:
        parameters = inspect.signature(getattr(mask, name)).parameters
        assert not {"seed", "random_state", "rng", "generator"} & set(parameters), name
