"""docs/model-parallel.md prints what it says, as a group of one."""

from __future__ import annotations

from tests.docs import pages


def test_the_page_prints_what_it_says(tmp_path):
    page = (pages.ROOT / "docs" / "model-parallel.md").read_text()
    pages.check_programs(pages.programs(pages.blocks(page)), pages.ROOT, tmp_path)
