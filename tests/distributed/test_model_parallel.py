"""Layers and sequences that are divided among ranks, layers on several ranks: each has the results
of one rank, gradients too."""

from __future__ import annotations

import pytest

from minigrad import nn
from minigrad.distributed.pipelining import (
    Schedule1F1B,
    ScheduleGPipe,
    SplitPoint,
    Timeline,
    ideal_bubble,
    pipeline,
)
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


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_pipelines_equal_one_rank(ranks, seed):
    printed = run(ranks, "pipelines.py", environment={"MINIGRAD_TEST_SEED": str(seed)})
    assert printed.count("split passed") == ranks


@pytest.mark.parametrize("schedule", [ScheduleGPipe, Schedule1F1B])
@pytest.mark.parametrize("backward", [1, 2])
def test_the_idle_share_of_a_schedule_is_that_of_the_formula(schedule, backward):
    for stages in (1, 2, 3, 5, 8):
        for count in (1, 2, 7, 16):
            found = Timeline.ideal(schedule, stages, count, 1, backward)
            assert found.bubble == pytest.approx(ideal_bubble(stages, count), abs=1e-12)


def test_the_picture_of_a_pipeline():
    timeline = Timeline.ideal(Schedule1F1B, 3, 4)
    assert str(timeline).splitlines() == [
        "Schedule1F1B: 3 stages, 4 micro-batches, idle 33.3% (theory 33.3%)",
        "stage 0: F0 F1 F2 B0 F3 B1 B2 B3",
        "stage 1: F0 F1 B0 F2 B1 F3 B2 B3",
        "stage 2: F0 B0 F1 B1 F2 B2 F3 B3",
    ]
    shapes = timeline.picture().shapes
    boxes = [shape for kind, shape in shapes if kind == "rect" and shape["tip"]]
    assert len(boxes) == 2 * 3 * 4
    # A backward pass takes twice as long as a forward pass.
    assert boxes[-1]["width"] == pytest.approx(2 * boxes[0]["width"])
    last = max(box["x"] + box["width"] for box in boxes)
    assert last == pytest.approx(min(box["x"] for box in boxes) + 680)


def test_what_cannot_be_cut_into_stages():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert pipeline(net, split_spec={"0": SplitPoint.END}).num_stages == 2
    with pytest.raises(ValueError, match="no child has the name 'x'"):
        pipeline(net, split_spec={"x": SplitPoint.END})
    with pytest.raises(ValueError, match="would have no layers"):
        pipeline(net, split_spec={"0": SplitPoint.BEGINNING})
    with pytest.raises(NotImplementedError, match="got Linear"):
        pipeline(net[0])
