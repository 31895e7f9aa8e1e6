"""`minigrad.profiler`: schedules as torch's, and records of launches."""

from __future__ import annotations

import gzip
import json

import pytest

import minigrad
from minigrad import nn, profiler
from minigrad.profiler import profile, record_function, schedule


@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
@pytest.mark.parametrize(
    "options",
    [
        {"wait": 1, "warmup": 1, "active": 2},
        {"wait": 0, "warmup": 0, "active": 1, "repeat": 3},
        {"wait": 2, "warmup": 1, "active": 3, "repeat": 2, "skip_first": 4},
    ],
)
def test_schedules_as_torch(options, torch):
    from torch.profiler import schedule as theirs

    mine, wanted = schedule(**options), theirs(**options)
    assert [mine(i).name for i in range(40)] == [wanted(i).name for i in range(40)]


def train(steps, **options):
    """The profile of some steps, and the names in each record."""
    layer, records = nn.Linear(3, 2), []

    def ready(prof):
        records.append([event.name for event in prof.events()])

    with profile(on_trace_ready=ready, **options) as prof:
        for _ in range(steps):
            with record_function("forward"):
                y = layer(minigrad.ones(4, 3))
            y.sum().backward()
            prof.step()
    return prof, records


def test_a_record_has_the_launches_of_its_steps():
    prof, records = train(2)
    assert len(records) == 1
    names = records[0]
    assert names.count("forward") == 2 and any(name.startswith("matmul (") for name in names)
    rows = {row.key: row for row in prof.key_averages()}
    forward = rows["forward"]
    assert forward.count == 2 and 0 < forward.self_cpu_time_total < forward.cpu_time_total
    assert forward.cpu_time == forward.cpu_time_total / 2
    table = prof.key_averages().table(sort_by="count", row_limit=1)
    assert "forward" not in table or max(r.count for r in rows.values()) == 2
    assert table.count("\n") == 5
    with pytest.raises(ValueError, match="sort_by must be"):
        prof.key_averages().table(sort_by="memory")


def test_a_schedule_divides_the_record():
    """Steps 0 to 7: wait, warm up, two recorded; twice. A cut cycle is handed over at the end."""
    plan = schedule(wait=1, warmup=1, active=2)
    _, records = train(8, schedule=plan)
    assert [names.count("forward") for names in records] == [2, 2]
    _, records = train(7, schedule=plan)
    assert [names.count("forward") for names in records] == [2, 1]
    _, records = train(1, schedule=plan)
    assert records == []


def test_files_for_viewers(tmp_path):
    prof, _ = train(1)
    prof.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {e["cat"] for e in events} == {"kernel", "user_annotation"}
    assert all(e["ph"] == "X" and e["dur"] >= 0 and e["ts"] >= 0 for e in events)
    profiler.tensorboard_trace_handler(tmp_path / "log", "me", use_gzip=True)(prof)
    (path,) = (tmp_path / "log").iterdir()
    assert path.name.startswith("me.") and path.name.endswith(".pt.trace.json.gz")
    assert json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] == events


def test_what_it_refuses():
    with pytest.raises(AssertionError, match="active must be positive"):
        schedule(wait=0, warmup=0, active=0)
    with profile(), pytest.raises(RuntimeError, match="cannot be nested"), profile():
        pass


def test_a_decorated_function_is_a_block():
    @record_function("work")
    def work(x):
        """Doubled."""
        return x + x

    with profile() as prof:
        assert work(minigrad.ones(2)).tolist() == [2, 2]
    assert work.__doc__ == "Doubled." and "work" in [e.name for e in prof.events()]
    assert work(minigrad.ones(1)).item() == 2  # outside of a profile


def test_scatter_divides_tensors():
    from minigrad.nn.parallel import scatter

    x = minigrad.arange(6)
    parts = scatter({"x": x, "n": 3, "pair": [x, (x,)]}, ["cpu", "cpu"])
    assert [p["x"].tolist() for p in parts] == [[0, 1, 2], [3, 4, 5]]
    assert parts[1]["n"] == 3 and parts[1]["pair"][1][0].tolist() == [3, 4, 5]
    assert [p.tolist() for p in scatter(x[:1], ["cpu", "cpu"])] == [[0]]


def test_the_interface_of_autograd(torch):
    """What the former tutorials ask of a record, of both."""
    for t in (minigrad, torch):
        layer, profiler = t.nn.Linear(3, 2), t.autograd.profiler
        with (
            profiler.profile(record_shapes=True, use_cpu=True) as prof,
            profiler.record_function("forward"),
        ):
            layer(t.ones(4, 3))
        keys = [row.key for row in prof.key_averages()]
        table = prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=5)
        assert "forward" in keys and "forward" in table and "forward" in prof.table()
        whole = prof.total_average()
        assert whole.count >= 2 and len(prof.function_events) >= 2
        assert 0 < prof.self_cpu_time_total <= whole.cpu_time_total
        assert prof.self_cpu_time_total == pytest.approx(whole.self_cpu_time_total)


def test_a_record_that_is_not_enabled():
    with profile(), minigrad.autograd.profiler.profile(enabled=False) as off:
        minigrad.ones(4, 3).sum()
    assert off.function_events == [] and off.self_cpu_time_total == 0
    assert off.total_average().cpu_time == 0 and str(off).count("\n") == 4
