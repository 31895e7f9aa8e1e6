"""Downloads of checkpoints, from files."""

from __future__ import annotations

import hashlib
import os

import pytest

import minigrad
from minigrad import hub, nn


def test_a_checkpoint_is_downloaded_once(tmp_path, monkeypatch, capsys):
    state = nn.Linear(2, 3).state_dict()
    source = tmp_path / "weights.pt"
    minigrad.save(state, source)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    named = source.rename(tmp_path / f"linear-{digest[:8]}.pt")
    monkeypatch.setenv("MINIGRAD_CACHE_DIR", str(tmp_path / "cache"))
    for _ in range(2):
        loaded = hub.load_state_dict_from_url(named.as_uri(), progress=False, check_hash=True)
        assert minigrad.equal(loaded["weight"], state["weight"])
        named.write_bytes(b"no longer looked at")
    assert [p.name for p in (tmp_path / "cache/hub/checkpoints").iterdir()] == [named.name]
    again = minigrad.utils.model_zoo.load_url(named.as_uri(), progress=False)
    assert minigrad.equal(again["weight"], state["weight"])


def test_another_hash(tmp_path):
    source = tmp_path / "file"
    source.write_bytes(b"content")
    with pytest.raises(RuntimeError, match='expected "00000000", got "ed7002b4"'):
        hub.download_url_to_file(source.as_uri(), tmp_path / "copy", "00000000", progress=False)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    hub.download_url_to_file(source.as_uri(), tmp_path / "copy", "ed7002b4")
    assert (tmp_path / "copy").read_bytes() == b"content"


def test_a_killed_download_leaves_nothing_for_long(tmp_path):
    source = tmp_path / "file"
    source.write_bytes(b"content")
    left = tmp_path / ".copy.0123456789ab.tmp"
    left.write_bytes(b"con")
    os.utime(left, (0, 0))
    hub.download_url_to_file(source.as_uri(), tmp_path / "copy", progress=False)
    assert {p.name for p in tmp_path.iterdir()} == {"file", "copy"}
