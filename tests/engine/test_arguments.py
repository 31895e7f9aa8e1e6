"""Arguments that do not fit, have no elements or are of another dtype: programs as those of
`test_side_by_side`, with one value or error type for torch and minigrad."""

from __future__ import annotations

import pytest

from minigrad import backends
from tests.engine.test_side_by_side import check

PROGRAMS = {
    "empty_parts": """
        [m.linalg.norm(m.empty(0, 0), p) for p in (1, 2, inf, "fro", "nuc")]
        [m.linalg.matrix_norm(m.empty(2, 3, 0), p, keepdim=True) for p in (1, 2)]
        m.linalg.norm(m.empty(3, 0), -1)
        m.linalg.norm(m.empty(3, 0), -2)
        m.linalg.ldl_solve(m.empty(0, 0), m.empty(0).int(), m.empty(2, 0, 3))
        m.linalg.ldl_solve(m.eye(3).expand(2, 3, 3), i(1, 2, 3).expand(2, 3), m.empty(3, 0))
        m.nn.functional.max_pool1d(m.empty(1, 0, 2), 1)
        m.nn.functional.max_pool2d(m.empty(0, 1, 2), 1)
        m.nn.functional.max_pool2d(m.empty(0, 1, 1, 2), 1)
        m.nn.functional.max_pool3d(m.empty(1, 0, 1, 2, 2), 1)
        m.nn.functional.avg_pool1d(m.empty(0, 2), 1)
        m.nn.functional.avg_pool2d(m.empty(1, 0, 1, 2), 1)
        m.nn.functional.avg_pool3d(m.empty(0, 1, 2, 2), 1)
        m.nn.functional.fractional_max_pool3d(m.empty(0, 1, 4, 5, 4), (2, 2, 1), (2, 3, 2))
        m.zeros(3, 0).unique(dim=0)
        m.zeros(0, 3).unique(dim=0)
        m.tensor(5).unique(dim=0)
        m.zeros(2, 3).unique(dim=-3)
        m.zeros(2, 3).unique(dim=-1)
    """,
    "sizes_that_do_not_fit": """
        m.complex(m.ones(5), m.ones(3))
        m.complex(m.ones(2, 1), m.ones(3))
        m.gcd(m.ones(5).long(), m.ones(3).long())
        m.nn.functional.conv_transpose1d(m.ones(12), m.ones(1, 1, 1))
        m.nn.functional.conv_transpose2d(m.ones(3, 3), m.ones(1, 1, 1, 1))
        m.nn.functional.conv_transpose2d(m.ones(1, 3, 3), m.ones(1, 1, 1))
        m.igamma(m.ones(5), m.ones(3))
        m.special.zeta(m.ones(5), m.ones(3))
        m.nn.functional.conv_transpose1d(m.ones(1, 1, 2), m.ones(1, 1, 1), stride=0)
        m.nn.functional.conv_transpose2d(m.ones(1, 1, 2, 2), m.ones(1, 1, 1, 1), stride=0)
        m.nn.functional.conv_transpose2d(m.ones(1, 1, 2, 2), m.ones(1, 1, 1, 1), padding=9)
        m.nn.functional.conv_transpose3d(m.ones(5 * [1]), m.ones(5 * [1]), None, (0, 1, 1))
        m.nn.functional.conv_transpose3d(m.ones(1, 1, 2, 2, 2), m.ones(1, 1, 1, 1, 1), padding=9)
        m.nn.functional.avg_pool1d(r[None], 2, stride=())
        m.nn.functional.max_pool1d(r[None], 2, stride=())
        m.linalg.matrix_norm(r, 2, ())
        m.linalg.matrix_norm(r, 2, (0, 1, 0))
        m.nn.functional.instance_norm(x[None], weight=m.ones(2))
        m.nn.functional.instance_norm(x[None], bias=m.ones(2))
        m.nn.functional.interpolate(m.zeros(1, 0, 3), size=3)
        m.nn.functional.interpolate(m.zeros(0, 1, 3), size=3)
        m.nn.functional.interpolate(x[None], size=3.5)
        m.nn.functional.interpolate(r[None], size=m.tensor(5))
        m.nn.functional.interpolate(r[None, None], size=[np.int64(5), m.tensor(6)])
        r[:, :3].view(m.float64)
        r[:, ::2].view(m.int16)
        r[0, 0].view(m.float64)
        r[:, :2].view(m.int16).shape
        m.optim.SGD([m.ones(2)], lr=m.tensor([0.1, 0.2]))
        m.optim.Adam([m.ones(2)], lr=m.tensor([0.1, 0.2]))
    """,
    "no_tensors_and_no_dimensions": """
        m.ones(2).view_as(None)
        m.ones(2).expand_as(None)
        m.ones(2).reshape_as(3)
        m.ones(2).type_as(3)
        m.div(None, m.ones(2), rounding_mode="trunc")
        m.remainder(None, m.ones(2))
        r.all(dim=())
        m.any(r, dim=(), keepdim=True)
        r.to(m.uint8).all(())
        m.tensor(2.0).all(())
        m.igamma(m.tensor([2]), m.tensor([0.0])), m.igammac(m.tensor([2.0]), m.tensor([0]))
        m.igamma(m.tensor([2]), m.tensor([1]))
    """,
    "solutions_of_another_dtype": """
        m.linalg.solve_triangular(m.eye(2) * 2, m.tensor([[1], [2]]), upper=False)
        m.linalg.solve_triangular(m.eye(2) * 2, m.tensor([[True, False]]), upper=True, left=False)
        m.linalg.solve_triangular(m.eye(2) * 2, m.ones(2, 1).double(), upper=False)
        m.linalg.solve_triangular(m.eye(2).double() * 2, m.ones(2, 1), upper=False)
        m.linalg.solve_triangular(m.eye(2).to(m.complex64) * 2j, m.ones(2, 1), upper=False)
        grad(lambda x: m.linalg.solve_triangular(m.eye(3).double() * 2, x, upper=False))
        m.triangular_solve(m.tensor([[1], [2]]), m.eye(2))
        m.triangular_solve(m.ones(2, 1).double(), m.eye(2))
        m.linalg.householder_product(m.ones(2, 2), m.tensor([1, 2]))
    """,
    "filled_by_tensors": """
        m.ones(2, dtype=m.int8).masked_fill(m.tensor(True), m.tensor(300))
        m.ones(2, dtype=m.int8).masked_fill_(m.tensor(True), m.tensor(300))
        m.ones(2, dtype=m.uint8).masked_fill(m.tensor(True), m.tensor(-1))
        m.ones(2, dtype=m.int8).index_fill(0, m.tensor([0]), m.tensor(300))
        m.ones(2).half().masked_fill(m.tensor(True), m.tensor(1e6))
        m.ones(2).half().masked_fill(m.tensor(True), m.tensor(-inf))
        m.ones(2).masked_fill(m.tensor(True), m.tensor(1e300, dtype=m.float64))
        m.ones(2).long().masked_fill(m.tensor(True), m.tensor(nan))
        m.ones(2).masked_fill(m.tensor(True), m.tensor(1j))
        m.ones(2).masked_fill(m.tensor(True), m.tensor(2 + 0j))
        grad(lambda x: x.masked_fill(x > 0, m.tensor(3, dtype=m.int8)))
    """,
    "complex_parts": """
        m.tensor([complex(nan, inf), complex(-inf, 1)]).nan_to_num(2.0, 3.0)
        m.tensor([nan, inf, -inf]).nan_to_num(nan=None, posinf=None, neginf=5)
        m.cov(m.complex(x, x * x), aweights=m.tensor([1.0, 2.0, 3.0, 0.5])).abs().mul(99).round()
        m.cov(m.complex(x, x * x), fweights=m.tensor([1, 2, 0, 1])).abs().mul(99).round()
        m.cov(r.half(), aweights=m.ones(4)) * 3
        m.cov(r.bfloat16(), fweights=m.tensor([1, 2, 3, 2]), correction=0)
        m.tensor([1j, 2j]).take(m.tensor(1)) * 2
        m.tensor([1j, 2]).scatter_reduce(0, m.tensor([0]), m.tensor([1j]), "amax")
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_like_torch(name, torch):
    with backends.use("numpy"):
        check(PROGRAMS[name], torch)
