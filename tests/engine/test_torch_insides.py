"""Names of torch that programs ask for without the part of torch behind them."""

from __future__ import annotations

import copy
import importlib

import pytest

import minigrad
from minigrad import fx, nn
from minigrad._dynamo import _trace_wrapped_higher_order_op as order
from minigrad.distributed import tensor as divided
from minigrad.distributed.algorithms import join


def test_no_value_is_a_proxy_and_no_module_a_traced_one():
    assert not isinstance(minigrad.ones(1), fx.Proxy)
    assert not isinstance(nn.Linear(1, 1), minigrad.fx.GraphModule)
    assert fx.wrap(len) is len and fx.wrap("len") == "len"
    for cls in (fx.Proxy, fx.GraphModule):
        with pytest.raises(NotImplementedError, match=f"fx.{cls.__name__}: minigrad has no"):
            cls(nn.Linear(1, 1), None)
    with pytest.raises(AttributeError, match="no attribute 'symbolic_trace'"):
        _ = fx.symbolic_trace


def test_no_tensor_is_a_dtensor():
    x = minigrad.ones(2)
    assert not isinstance(x, divided.DTensor) and not isinstance(nn.Parameter(x), divided.DTensor)
    assert all(isinstance(p, divided.Placement) for p in (divided.Shard(0), divided.Replicate()))
    for make in (
        divided.DTensor,
        divided.DTensor.from_local,
        divided.distribute_tensor,
    ):
        with pytest.raises(NotImplementedError, match=f"{make.__name__}: minigrad has no DTensor"):
            make(x, None, [divided.Shard(0)])


def test_names_of_the_compiler():
    dynamo, compiler = minigrad._dynamo, minigrad.compiler
    assert dynamo.disable is compiler.disable and dynamo.reset is compiler.reset
    for function in (dynamo.allow_in_graph, compiler.assume_constant_result):
        assert function(len) is len
    seen = []

    @minigrad.compile
    def step(x):
        seen.append((dynamo.is_compiling(), compiler.is_dynamo_compiling()))
        return x + 1

    step(minigrad.ones(2))
    assert (True, True) in seen
    module = minigrad.compile(nn.Linear(1, 1))
    assert isinstance(module, dynamo.eval_frame.OptimizedModule)
    assert not isinstance(step, dynamo.eval_frame.OptimizedModule)
    assert not dynamo.is_compiling() and not compiler.is_exporting()
    before = copy.copy(dynamo.config)
    dynamo.config.suppress_errors = True
    assert dynamo.config != before and dynamo.config.cache_size_limit == 8
    dynamo.config.suppress_errors = False


def test_vmap_takes_tensors_of_one_number_as_indices(torch):
    x = [[1.0, 2.0], [3.0, 4.0]]
    with order.TransformGetItemToIndex():
        found = minigrad.vmap(lambda i: minigrad.tensor(x)[i])(minigrad.tensor([1, 0, 1]))
    assert found.tolist() == torch.tensor(x)[torch.tensor([1, 0, 1])].tolist()


def test_the_sharded_class_has_torchs_places():
    place = importlib.import_module("minigrad.distributed.fsdp.fully_sharded_data_parallel")
    assert place.FullyShardedDataParallel is minigrad.distributed.fsdp.FullyShardedDataParallel


def test_no_argument_takes_over_a_function(torch):
    x = minigrad.ones(1)
    for module, tensor in ((minigrad.overrides, x), (torch.overrides, torch.ones(1))):
        assert not module.has_torch_function((tensor, 1)) and module.is_tensor_like(tensor)
        assert not module.has_torch_function_unary(tensor) and not module.is_tensor_like(3)
        assert not module.has_torch_function_variadic(tensor, tensor)

    class Seeing(minigrad.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with (
        pytest.raises(NotImplementedError, match="Seeing: minigrad has no modes"),
        Seeing(),
    ):
        pass


def test_streams_are_those_of_gpus():
    assert minigrad.Stream is minigrad.cuda.Stream and minigrad.Event is minigrad.cuda.Event


def test_uneven_inputs_of_ranks_are_refused():
    with pytest.raises(NotImplementedError, match="Join: minigrad has no steps"):
        join.Join([nn.Linear(1, 1)])
    assert not isinstance(nn.Linear(1, 1), join.Joinable)
