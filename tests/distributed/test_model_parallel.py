"""Layers and sequences that are divided among ranks: the results of one rank, gradients too."""

from __future__ import annotations

import pytest

from tests.distributed.launch import FOLDER, run, start

pytestmark = pytest.mark.needs("mpi4py")


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_divided_layers_and_sequences_equal_one_rank(ranks, seed):
    environment = {"MINIGRAD_TEST_SEED": str(seed)}
    printed = run(ranks, "model_parallel.py", environment=environment)
    assert printed.count("ring passed") == ranks


def test_a_rank_that_skips_a_layer_is_named():
    done = start(2, str(FOLDER / "model_parallel.py"), "skips")
    assert done.returncode != 0
    assert "rank 0: all_reduce(SUM) float32 (2, 4)" in done.stderr
    assert "rank 1: barrier" in done.stderr
