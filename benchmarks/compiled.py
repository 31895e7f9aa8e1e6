"""Compiled steps (`minigrad.compile`) beside eager ones, torch's eager ones and JAX's jitted ones.

    python -m benchmarks.compiled [--threads 1] [--device cuda] [--only mlp] [--json]

All contenders take turns in one process, from the same weights on the same batch, and the losses of
the first steps are compared. JAX has the two networks of `benchmarks.jax_networks`. With --threads
the process is bound to so many cores before the libraries start: the number of JAX's threads
follows from them. torch and JAX are left out where they are not installed, JAX also on a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import os

import measure
import numpy as np

CHECK_STEPS = 5
# Small networks, where Python takes most of an eager step; JAX's two; the rest of the table
CASES = (
    "a + b, 4 elements",
    "(a * a).sum().backward()",
    "linear 10-1, batch 32",
    "mlp of 50 layers of 64, batch 64",
    "mlp 784-512-256-10, batch 128",
    "cnn 8x8, batch 64",
    "cnn 28x28, batch 32",
    "hand-written lstm(64), 32 x 20",
    "neural ode, 20 steps of RK4",
    "gpt, training",
    "gpt, sampling",
    "dcgan 32x32, batch 32",
)


def contenders(case) -> dict:
    """The step of each library, from the same weights."""
    import networks

    import minigrad

    minigrad.manual_seed(0)
    model, eager = case.make(minigrad)
    twin, step = case.make(minigrad)
    weights = {} if model is None else model.state_dict()
    if model is not None:
        twin.load_state_dict(weights)
    found = {"compiled": minigrad.compile(step), "eager": eager}
    arrays = {name: np.array(w.cpu().numpy()) for name, w in weights.items()}
    if importlib.util.find_spec("torch"):
        import torch

        rival, found["torch"] = case.make(torch)
        if rival is not None:
            rival.load_state_dict({n: torch.from_numpy(w.copy()) for n, w in arrays.items()})
    if importlib.util.find_spec("jax") and minigrad.get_default_device().type == "cpu":
        import jax_networks

        if case.name in jax_networks.STEPS:
            found["jax"] = jax_networks.STEPS[case.name](networks, arrays)
    return found


def run(case, turns: int) -> dict:
    steps = contenders(case)
    losses = {name: [_number(step()) for _ in range(CHECK_STEPS)] for name, step in steps.items()}
    for step in steps.values():
        if hasattr(step, "checked"):
            step.checked = False
    eager = np.array(losses["eager"])
    differ = {
        name: float(np.max(np.abs(np.array(found) - eager) / np.maximum(np.abs(eager), 1e-3)))
        for name, found in losses.items()
        if name != "eager"
    }
    timings = measure.side_by_side(steps, turns=turns, finish=finish)
    own = timings["compiled"].median
    ratios = {f"compiled / {name}": own / timings[name].median for name in differ | {"eager": 0}}
    del ratios["compiled / compiled"]
    recorded = steps["compiled"].report().splitlines()[1:]
    return {"case": case.name, **timings, **ratios, "differences": differ, "recorded": recorded}


def finish() -> None:
    """Wait for what was launched."""
    import minigrad

    if minigrad.get_default_device().type == "cuda":
        minigrad.cuda.synchronize()


def _number(result) -> float:
    found = result.detach().cpu().numpy() if hasattr(result, "detach") else np.asarray(result)
    return float(found.sum())


def show(row: dict) -> None:
    names = [name for name in ("compiled", "eager", "torch", "jax") if name in row]
    times = "   ".join(f"{name} {row[name]}" for name in names)
    ratios = "  ".join(f"{row[f'compiled / {name}']:.2f} of {name}" for name in names[1:])
    print(f"{row['case']:<34} {times}   time: {ratios}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=1, help="of all contenders; default: 1")
    parser.add_argument("--device", default="cpu", help="cpu or cuda; default: cpu")
    parser.add_argument("--only", default="", help="only the cases whose name holds this")
    parser.add_argument("--turns", type=int, default=11, help="turns of each; default: 11")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/...")
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-args.threads :])
    import networks

    import minigrad
    from kernels import simt

    simt.set_num_threads(args.threads)
    minigrad.set_default_device(args.device)
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(args.threads)
        torch.set_default_device(args.device)
    rows = []
    for case in networks.CASES:
        if case.name in CASES and args.only in case.name:
            rows.append(run(case, args.turns))
            show(rows[-1])
    for name in ("torch", "jax"):
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed: no ratios (pip install 'minigrad[parity]')")
    if args.json:
        where = args.device if args.device != "cpu" else f"{args.threads}-threads"
        path = measure.results_path(f"compiled-{where}")
        measure.write_json(path, args.threads, rows)


if __name__ == "__main__":
    main()
