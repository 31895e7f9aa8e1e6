"""`Module`: registration, traversal, state dicts, hooks, copies, and torch's errors."""

from __future__ import annotations

import copy
import pickle
import traceback
from collections import OrderedDict

import numpy as np
import pytest

import minigrad
from minigrad import nn

pytestmark = pytest.mark.usefixtures("reference_backend")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.tied = self.first
        self.scale = nn.Parameter(minigrad.ones(2))
        self.register_buffer("seen", minigrad.zeros(2))
        self.register_buffer("scratch", minigrad.zeros(1), persistent=False)
        self.nothing = None

    def forward(self, x):
        return self.norm(self.first(x))


def test_walks_name_everything_once():
    net = Net()
    assert [name for name, _ in net.named_modules()] == ["", "first", "norm"]
    assert [name for name, _ in net.named_children()] == ["first", "norm"]
    names = [name for name, _ in net.named_parameters()]
    assert names == ["scale", "first.weight", "first.bias", "norm.weight", "norm.bias"]
    all_names = [name for name, _ in net.named_parameters(remove_duplicate=False)]
    assert "tied.weight" in all_names
    assert [n for n, _ in net.named_parameters(recurse=False)] == ["scale"]
    assert [n for n, _ in net.named_buffers(prefix="p")][:2] == ["p.seen", "p.scratch"]
    assert "tied.weight" in net.state_dict() and "scratch" not in net.state_dict()
    assert net.get_submodule("norm") is net.norm
    assert net.get_submodule("") is net
    assert net.get_parameter("first.weight") is net.first.weight
    assert net.get_buffer("norm.running_mean") is net.norm.running_mean


def test_assignment_sorts_by_type():
    net = nn.Module()
    net.a = nn.Parameter(minigrad.zeros(1))
    net.b = nn.Buffer(minigrad.zeros(1), persistent=False)
    net.c = nn.ReLU()
    net.d = minigrad.zeros(1)
    assert list(net._parameters) == ["a"] and list(net._buffers) == ["b"]
    assert list(net._modules) == ["c"] and "d" in net.__dict__
    net.a = None
    assert net.a is None and not list(net.parameters())
    net.c = nn.Tanh()
    assert isinstance(net.c, nn.Tanh)
    net.b = minigrad.ones(2)
    assert net._buffers["b"].shape == (2,) and not net.state_dict()
    del net.c
    assert not list(net.children())
    assert {"a", "b"} <= set(dir(net))


def test_parameter_is_a_tensor_that_trains():
    t = minigrad.tensor([1.0, 2.0])
    p = nn.Parameter(t)
    assert isinstance(p, minigrad.Tensor) and p.requires_grad and p.is_leaf
    t[0] = 5.0
    assert p.tolist() == [5.0, 2.0]  # shares storage, as in torch
    assert type(p * 2) is minigrad.Tensor
    assert repr(p).startswith("Parameter containing:\ntensor(")
    copied = copy.deepcopy(p)
    assert type(copied) is nn.Parameter and copied.data_ptr() != p.data_ptr()
    p.no_decay = True
    assert p.no_decay
    with pytest.raises(TypeError, match="expected a minigrad.Tensor"):
        nn.Parameter([1.0])


@pytest.mark.parametrize(
    "program",
    [
        lambda t: t.nn.Module().register_buffer("a.b", None),
        lambda t: t.nn.Module().register_buffer("", None),
        lambda t: t.nn.Module().register_buffer(3, None),
        lambda t: t.nn.Module().register_buffer("forward", None),
        lambda t: t.nn.Module().register_buffer("b", 3),
        lambda t: t.nn.Module().register_parameter("a.b", None),
        lambda t: t.nn.Module().register_parameter("p", 3),
        lambda t: t.nn.Module().add_module("m", 3),
        lambda t: t.nn.Module().add_module("", t.nn.ReLU()),
        lambda t: t.nn.Module().add_module("a.b", t.nn.ReLU()),
        lambda t: t.nn.Module().add_module("training", t.nn.ReLU()),
        lambda t: t.nn.Module().missing,
        lambda t: t.nn.Module()(1),
        lambda t: t.nn.Module(3),
        lambda t: t.nn.Module(size=3),
        lambda t: t.nn.Linear(2, 2).get_submodule("weight"),
        lambda t: t.nn.Linear(2, 2).get_submodule("x"),
        lambda t: t.nn.Linear(2, 2).get_parameter("in_features"),
        lambda t: t.nn.Linear(2, 2).get_buffer("weight"),
        lambda t: setattr(t.nn.Linear(2, 2), "weight", 3),
        lambda t: setattr(t.nn.Sequential(t.nn.ReLU()), "0", 3),
        lambda t: setattr(t.nn.BatchNorm1d(2), "running_mean", 3),
        lambda t: t.nn.Linear(2, 2).train("yes"),
        lambda t: t.nn.Linear(2, 2).to(t.int64),
        lambda t: t.nn.Sequential(t.nn.ReLU())[1],
        lambda t: t.nn.ModuleList([t.nn.ReLU()])[-2],
        lambda t: t.nn.ModuleList(3),
        lambda t: t.nn.ModuleDict([(1, 2, 3)]),
        lambda t: t.nn.Sequential() + 3,
        lambda t: t.nn.ModuleDict()["x"],
        lambda t: t.nn.Linear(2, 2).load_state_dict(3),
        lambda t: t.nn.Linear(2, 2).load_state_dict({}),
        lambda t: t.nn.Linear(2, 2).load_state_dict(
            {"weight": t.zeros(3, 2), "bias": t.zeros(2), "x": t.zeros(1), "a.b": t.zeros(1)}
        ),
        lambda t: t.nn.Linear(2, 2, bias=False).load_state_dict(
            {"weight": t.zeros(2, 2), "bias": t.zeros(2)}
        ),
        lambda t: t.nn.Linear(2, 2).load_state_dict({"weight": 3, "bias": t.zeros(2)}),
    ],
    ids=range(35),
)
def test_errors_as_torch(program, same_error):
    same_error(program)


def test_assigning_before_init():
    class Bad(nn.Module):
        def __init__(self):
            self.layer = nn.ReLU()

    with pytest.raises(AttributeError, match="cannot assign module before Module.__init__"):
        Bad()


def test_state_dict_round_trip(rng):
    a, b = Net(), Net()
    for p in a.parameters():
        p.data.copy_(minigrad.tensor(rng.normal(size=p.shape)))
    a.seen.fill_(3)
    assert str(b.load_state_dict(a.state_dict())) == "<All keys matched successfully>"
    for (key, x), y in zip(a.state_dict().items(), b.state_dict().values(), strict=True):
        assert (x.numpy() == y.numpy()).all(), key
        assert x.data_ptr() != y.data_ptr(), key
    live = b.state_dict()
    b.scale.data.fill_(7)
    assert live["scale"].tolist() == [7, 7]  # detached, but the same memory
    assert not live["scale"].requires_grad
    assert b.state_dict(keep_vars=True)["scale"] is b.scale
    assert live._metadata["norm"] == {"version": 2}


def test_partial_load():
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    result = net.load_state_dict({"0.weight": minigrad.ones(2, 2), "9.x": minigrad.ones(1)}, False)
    assert result.missing_keys == ["0.bias"] and result.unexpected_keys == ["9.x"]
    assert net[0].weight.tolist() == [[1, 1], [1, 1]]
    # Other dtypes are converted, and the parameter stays the same object with its own dtype.
    before = net[0].weight
    net.load_state_dict({"0.weight": minigrad.zeros(2, 2).double()}, strict=False)
    assert net[0].weight is before and before.dtype == minigrad.float32
    net.load_state_dict({"0.weight": minigrad.zeros(2, 2).double()}, strict=False, assign=True)
    assert net[0].weight.dtype == minigrad.float64 and isinstance(net[0].weight, nn.Parameter)


def test_old_batch_norm_checkpoint_has_no_counter():
    norm = nn.BatchNorm1d(2)
    state = {k: v for k, v in norm.state_dict().items() if k != "num_batches_tracked"}
    norm.load_state_dict(state)


def test_train_eval_apply_requires_grad_zero_grad():
    net = Net()
    assert net.eval() is net and not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())
    order = []
    net.apply(lambda m: order.append(type(m).__name__))
    assert order == ["Linear", "BatchNorm1d", "Net"]
    net(minigrad.ones(4, 3)).sum().backward()
    assert net.first.weight.grad is not None
    net.zero_grad(set_to_none=False)
    assert float(net.first.weight.grad.abs().sum()) == 0
    net.zero_grad()
    assert net.first.weight.grad is None
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_to_keeps_the_parameters():
    net = Net()
    before = list(net.parameters())
    net(minigrad.ones(4, 3)).sum().backward()
    net.double()
    assert all(a is b for a, b in zip(before, net.parameters(), strict=True))
    assert net.first.weight.dtype == net.first.weight.grad.dtype == minigrad.float64
    assert net.norm.running_mean.dtype == minigrad.float64
    assert net.norm.num_batches_tracked.dtype == minigrad.int64
    assert net.to("cpu").to(minigrad.float32).first.weight.dtype == minigrad.float32
    assert net.to(minigrad.zeros(1).double()).scale.dtype == minigrad.float64
    assert net.half().float().cpu().scale.dtype == minigrad.float32
    with pytest.raises(TypeError, match="unexpected keyword"):
        net.to(devise="cpu")
    if not minigrad.cuda.is_available():
        with pytest.raises(RuntimeError):
            net.cuda()


def test_deepcopy_and_pickle(rng):
    net = Net()
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        x = minigrad.tensor(rng.normal(size=(4, 3)).astype(np.float32))
        assert (copied.eval()(x).detach().numpy() == net.eval()(x).detach().numpy()).all()
        assert copied.tied is copied.first and isinstance(copied.scale, nn.Parameter)
        copied.scale.data.fill_(9)
        assert net.scale.tolist() == [1, 1]


def test_helpers_of_modules_as_torch(torch):
    def answers(t):
        utils = t.nn.modules.utils
        net = t.nn.Sequential(t.nn.Linear(1, 1), t.nn.BatchNorm1d(1))
        net = t.nn.ModuleDict({"module": net})
        state = net.state_dict()
        utils.consume_prefix_in_state_dict_if_present(state, "module.")
        pairs = utils._pair(3), utils._pair([1, 2]), utils._single(2), utils._triple("abc")
        more = utils._quadruple(1), utils._ntuple(5)(2), utils._reverse_repeat_tuple((1, 2), 2)
        return list(state), list(state._metadata), pairs, more, utils._pair.__name__

    assert answers(minigrad) == answers(torch)


def test_sequential():
    net = nn.Sequential(OrderedDict(a=nn.Linear(2, 3), b=nn.ReLU(), c=nn.Linear(3, 1)))
    assert net.a is net[0] and net[-1] is net.c and len(net) == 3
    assert list(net[:2]._modules) == ["a", "b"]
    assert [type(m).__name__ for m in net] == ["Linear", "ReLU", "Linear"]
    net[1] = nn.Tanh()
    assert isinstance(net.b, nn.Tanh)
    plain = nn.Sequential(nn.ReLU(), nn.Tanh())
    del plain[0]
    plain.append(nn.ReLU()).insert(0, nn.Sigmoid()).extend([nn.GELU()])
    assert [type(m).__name__ for m in plain] == ["Sigmoid", "Tanh", "ReLU", "GELU"]
    assert list(plain._modules) == ["0", "1", "2", "3"]
    assert isinstance(plain.pop(-1), nn.GELU) and len(plain) == 3
    assert len(plain + nn.Sequential(nn.ReLU())) == 4


def test_lists_and_dicts():
    layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    layers += [nn.ReLU()]
    assert len(layers) == 4 and len(list(layers.parameters())) == 6
    assert isinstance(layers[1:], nn.ModuleList) and len(layers[1:]) == 3
    with pytest.raises(NotImplementedError):
        layers(1)
    table = nn.ModuleDict({"x": nn.ReLU()})
    table["y"] = nn.Linear(2, 2)
    assert list(table) == ["x", "y"] and "y" in table and len(table) == 2
    assert isinstance(table.pop("x"), nn.ReLU) and list(table.keys()) == ["y"]
    parameters = nn.ParameterList([minigrad.zeros(2), nn.Parameter(minigrad.ones(1))])
    parameters.append(minigrad.ones(3))
    assert [tuple(p.shape) for p in parameters] == [(2,), (1,), (3,)]
    assert len(list(parameters.parameters())) == 3 and list(parameters.state_dict()) == list("012")
    named = nn.ParameterDict({"a": minigrad.zeros(2)})
    named["b"] = minigrad.ones(1)
    assert sorted(n for n, _ in named.named_parameters()) == ["a", "b"]
    assert named.pop("a").shape == (2,) and named.get("a") is None and len(named) == 1
    assert "Parameter containing" in repr(parameters) and "(b): Parameter" in repr(named)


class Wrong(nn.Module):
    """A layer of a program, around layers of minigrad that do not fit."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: nn.Linear(4, 2), ["__call__", "rule"]),
        (lambda: nn.Sequential(nn.ReLU(), nn.Linear(4, 2)), ["__call__", "rule"]),
        (Wrong, ["__call__", "forward", "rule"]),
    ],
)
def test_a_shape_error_shows_the_lines_of_the_program(make, expected):
    """Two frames of minigrad: the call, and what raised; and each frame of the program."""
    layer = make()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
        layer(minigrad.randn(2, 3))
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames][1:] == expected
    assert frames[1].line == "return self.forward(*args, **kwargs)"


def test_extra_state_and_load_hooks():
    class Counting(nn.Linear):
        count = 0

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    a, b = Counting(2, 2), Counting(2, 2)
    a.count = 5
    events = []
    b.register_load_state_dict_post_hook(lambda module, keys: events.append(keys.missing_keys))
    a.register_state_dict_post_hook(lambda m, state, prefix, meta: state.update(more=1) or None)
    state = a.state_dict()
    assert state.pop("more") == 1
    b.load_state_dict(state)
    assert b.count == 5 and events == [[]]


def _texts(t):
    """Representations of modules that hold parameters."""
    lists = t.nn.ParameterList([t.zeros(2), t.nn.ParameterList([t.ones(1)]), 3])
    dicts = t.nn.ParameterDict({"a": t.nn.ParameterList([t.ones(1)]), "b": t.zeros(2, 1)})
    whole = t.nn.ModuleDict({"lists": lists, "dicts": dicts})
    empty = t.nn.ParameterList(), t.nn.ParameterDict(), t.nn.ParameterList([t.ones(1)])
    loaded = whole.load_state_dict({}, strict=False)
    return [repr(x) for x in (lists, dicts, whole, *empty)] + [type(loaded).__name__]


def _dicts(t):
    """What ParameterDict has of a dict."""
    one = t.nn.ParameterDict({"a": t.zeros(1), "b": t.ones(2)})
    two = one | t.nn.ParameterDict({"c": t.zeros(3)})
    made = one.fromkeys(["x", "y"], t.ones(1))
    same = one.setdefault("a", t.ones(9)) is one["a"], one.setdefault("n", t.ones(3)).shape == (3,)
    key, value = two.popitem()
    one |= {"z": t.ones(1)}
    kept = one.copy()["a"] is one["a"]
    return key, type(value).__name__, list(two), list(made), same, list(reversed(one)), kept


def _always_called(t):
    """Which hooks of a failing forward run."""
    seen = []

    class Fails(t.nn.Module):
        def forward(self, x):
            raise ValueError("no")

    def hook(name):
        return lambda m, a, *rest: seen.append((name, rest[-1] is None))

    def failing(m, a, out):
        raise KeyError("hook")

    for layer in (Fails(), t.nn.Identity()):
        layer.register_forward_hook(hook("plain"))
        layer.register_forward_hook(failing)
        layer.register_forward_hook(hook("always"), always_call=True)
        layer.register_forward_hook(hook("kwargs"), always_call=True, with_kwargs=True)
        try:
            layer(t.ones(1))
        except (ValueError, KeyError) as error:
            seen.append(type(error).__name__)
    return seen


def _old_backward_hook(t):
    seen = []
    net = t.nn.Sequential(t.nn.Linear(2, 2), t.nn.ReLU())
    with t.no_grad():
        for p in net.parameters():
            p.fill_(0.5)
    handle = net[1].register_backward_hook(
        lambda m, gi, go: seen.append((type(m).__name__, gi[0].tolist(), go[0].tolist()))
    )
    net(t.ones(1, 2)).sum().backward()
    handle.remove()
    net(t.ones(1, 2)).sum().backward()
    return seen


def _submodules(t):
    net = t.nn.Sequential(t.nn.Sequential(t.nn.ReLU()), t.nn.Tanh())
    net.set_submodule("0.0", t.nn.Linear(1, 1))
    net.set_submodule("0.new", t.nn.GELU())
    errors = []
    for name, module, strict in (
        ("", t.nn.ReLU(), False),
        ("0.q", t.nn.ReLU(), True),
        ("1", 3, False),
    ):
        try:
            net.set_submodule(name, module, strict=strict)
        except Exception as error:
            errors.append(type(error))
    return repr(net), errors


def _messages(t):
    texts = []
    meta = t.nn.Linear(1, 1, device="meta")
    for program in (
        lambda: t.nn.Module().register_parameter("q", t.ones(1)),
        lambda: setattr(t.nn.Sequential(t.nn.ReLU()), "0", t.ones(1)),
        lambda: setattr(t.nn.Linear(1, 1), "weight", t.ones(1).long()),
        lambda: t.optim.SGD(t.nn.Parameter(t.ones(1)), 0.1),
        lambda: meta.to("cpu"),
    ):
        try:
            program()
        except (TypeError, NotImplementedError) as error:
            texts.append(str(error))
    return texts


def _refusals(t):
    """Two kinds of backward hooks; extra state that nothing takes."""

    class Saves(t.nn.Module):
        def get_extra_state(self):
            return 1

    both, texts = t.nn.Linear(1, 1), []
    both.register_backward_hook(lambda *args: None)
    for program in (
        lambda: both.register_full_backward_hook(lambda *args: None),
        lambda: Saves().load_state_dict(Saves().state_dict()),
    ):
        try:
            program()
        except RuntimeError as error:
            texts.append(str(error))
    return texts


def _several_bases(t):
    class Other:
        def __init__(self, **options):
            self.options = options

    class Both(t.nn.Module, Other):
        call_super_init = True

    return Both(x=1).options, list(Both().parameters())


PROGRAMS = [_texts, _dicts, _always_called, _old_backward_hook, _submodules, _messages]


@pytest.mark.parametrize("program", [*PROGRAMS, _refusals, _several_bases])
def test_programs_as_torch(program, torch):
    assert repr(program(minigrad)).replace("minigrad", "torch") == repr(program(torch))


class Named(nn.Module):
    """A layer whose attribute `part` is of another kind in each instance."""

    def __init__(self, part=None):
        super().__init__()
        if part is not None:
            self.part = part


def test_names_of_members_are_found_by_the_class():
    """Python finds them without failing first; a class has none of them, an instance its own."""
    parameter, layer = nn.Parameter(minigrad.ones(2)), nn.ReLU()
    first, second = Named(parameter), Named(layer)
    for _ in range(2):
        assert first.part is parameter and second.part is layer
    assert "part" in vars(Named) and not hasattr(Named, "part")
    assert Named(3).part == 3 and "part" not in dir(Named())
    with pytest.raises(AttributeError, match="'Named' object has no attribute 'part'"):
        assert Named().part
    first.part = nn.Parameter(minigrad.zeros(2))
    assert first.part is first._parameters["part"]
    first._parameters["part"] = parameter
    assert first.part is parameter
    del first.part
    assert not hasattr(first, "part")
    first.part = layer
    assert first.part is layer
    assert pickle.loads(pickle.dumps(second)).part is not layer
    assert isinstance(copy.deepcopy(second).part, nn.ReLU)


def test_what_other_classes_define_stays_in_force():
    class Mixin:
        part = "of the mixin"

    class Mixed(Named, Mixin):
        pass

    class Shadowed(Named):
        @property
        def part(self):
            return "of the class"

    assert Named(nn.ReLU()).part  # so that the class has the attribute
    assert Mixed().part == Mixed.part == "of the mixin"
    replaced = Named(nn.Parameter(minigrad.ones(1)))
    replaced.__class__ = Shadowed  # as a parametrisation does
    assert replaced.part == "of the class"

    class Asked(nn.Module):
        def __init__(self):
            super().__init__()
            self.part, self.other = nn.ReLU(), nn.ReLU()

        def __getattr__(self, name):
            return "asked" if name == "part" else super().__getattr__(name)

    assert Asked().other and [Asked().part for _ in range(2)] == ["asked"] * 2


def test_a_sequence_several_times():
    model = nn.Sequential(nn.ReLU(), nn.Tanh())
    assert [type(m).__name__ for m in 2 * model] == ["ReLU", "Tanh"] * 2
    model *= 2
    assert len(model) == 4
    with pytest.raises(ValueError, match="Non-positive multiplication factor 0"):
        model * 0


def test_assigned_parameters_keep_the_flag_of_the_module():
    frozen, model = nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 2)
    model.load_state_dict(dict(frozen.named_parameters()), assign=True)
    assert model.weight is frozen.weight
    assert model.weight.requires_grad


class Labelled(nn.Parameter):
    """A parameter that takes what it is called."""

    def __new__(cls, data, requires_grad=True, label=None):
        made = super().__new__(cls, data, requires_grad)
        made.label = label
        return made

    def __init__(self, data, requires_grad=True, label=None):
        pass


def test_attributes_of_parameters_as_in_torch(torch):
    """`__dict__` has what users attached; copies and pickles keep that, deep copies do not."""
    for m in (minigrad, torch):
        p = m.nn.Parameter(m.tensor([1.0, 2.0]))
        (p * p).sum().backward()
        assert p.__dict__ == {} and pickle.loads(pickle.dumps(p)).__dict__ == {}
        p.label, p.steps = "first", [1]
        assert vars(p) == {"label": "first", "steps": [1]}
        assert copy.deepcopy(p.__dict__) == pickle.loads(pickle.dumps(p.__dict__)) == p.__dict__
        q = m.nn.Parameter(m.zeros(2))
        q.__dict__.update(p.__dict__)
        assert q.tolist() == [0, 0] and q.grad is None and q.label == "first"
        for again in (copy.copy(p), pickle.loads(pickle.dumps(p))):
            assert again.__dict__ == p.__dict__ and again.tolist() == [1, 2]
            assert isinstance(again, m.nn.Parameter) and again.requires_grad
        assert copy.copy(p).data_ptr() == p.data_ptr() and copy.deepcopy(p).__dict__ == {}
        del q.__dict__["steps"]
        assert q.__dict__.pop("label") == "first" and q.__dict__ == {}
        assert not hasattr(q, "label") and not hasattr(q, "steps")
        q.__dict__ = {"other": 3}
        assert q.other == 3 and q.requires_grad and q.__dict__ == {"other": 3}
        q.__dict__.clear()
        assert not hasattr(q, "other")


def test_parameters_made_of_others_and_their_attributes():
    """The way in which other packages move the parameters of a layer to the device meta."""
    layer = nn.Linear(2, 3)
    layer.weight = Labelled(layer.weight.data, label="w")
    for name, parameter in layer._parameters.items():
        given = parameter.__dict__
        given["requires_grad"] = False
        layer._parameters[name] = type(parameter)(parameter.to("meta"), **given)
    assert layer.weight.label == "w" and type(layer.weight) is Labelled
    for parameter, again in zip(layer.parameters(), copy.deepcopy(layer).parameters(), strict=True):
        assert parameter.is_meta and again.is_meta and again.shape == parameter.shape
        assert not parameter.requires_grad and not again.requires_grad
