"""The table of what NVRTC makes of the kernels, which takes half a minute."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from kernels import dispatch
from kernels.lab.gpu_model import nvrtc, resources
from kernels.support.cache import seal


def test_several_that_need_it_make_it_once(tmp_path, monkeypatch):
    made = []

    def make(path, target, only):
        made.append(target)
        time.sleep(0.3)
        path.write_text("[]")
        seal(path, [path])

    monkeypatch.setattr(dispatch, "installed", lambda dialect: True)
    monkeypatch.setattr(nvrtc, "available", lambda: True)
    monkeypatch.setattr(resources, "_kept", lambda target, only: tmp_path / target)
    monkeypatch.setattr(resources, "_make", make)
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(resources.table, ["80"] * 3)) == [[]] * 3
    assert made == ["80"]
