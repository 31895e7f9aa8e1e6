"""Training steps, and single operations, of minigrad beside torch on the CPU.

    python -m benchmarks.training [--threads 1] [--only cnn] [--json]

Both have the same number of threads. A training step is zero_grad, forward, loss, backward and the
optimiser's update of one fixed batch, from the same weights; `benchmarks.networks` has the cases.
What the first steps return (the losses) is compared, so that both do equal work. The ratio is
minigrad's time over torch's, the median over the turns. Without torch, only minigrad's times are
shown. With several threads a row also has the time of a message from one to another, before and
after it: see `benchmarks.messages`.
"""

from __future__ import annotations

import argparse
import importlib.util
from types import ModuleType

import measure
import messages
import numpy as np
from networks import CASES, Case

import minigrad
from kernels import simt

CHECK_STEPS = 5


def run(case: Case, torch: ModuleType | None, turns: int) -> dict:
    minigrad.manual_seed(0)
    model, step = case.make(minigrad)
    if torch is None:
        return {"case": case.name, **measure.side_by_side({"minigrad": step}, turns=turns)}
    torch.manual_seed(0)
    rival, rival_step = case.make(torch)
    if model is not None:
        weights = {name: w.numpy().copy() for name, w in rival.state_dict().items()}
        model.load_state_dict({name: minigrad.from_numpy(w) for name, w in weights.items()})
    difference = max(_difference(step(), rival_step()) for _ in range(CHECK_STEPS))
    for one in (step, rival_step):
        if hasattr(one, "checked"):
            one.checked = False
    ours, theirs, ratio = measure.ratio(step, rival_step, turns=turns)
    row = {"case": case.name, "minigrad": ours, "torch": theirs}
    return {**row, "ratio": 1 / ratio.median, "spread": ratio.spread, "difference": difference}


def _difference(ours, theirs) -> float:
    """The largest relative difference of two results."""
    a, b = (np.asarray(x.detach().numpy(), np.float64) for x in (ours, theirs))
    return float(np.max(np.abs(a - b) / np.maximum(np.abs(b), 1e-3)))


def show(row: dict) -> None:
    line = f"{row['case']:<36} minigrad {row['minigrad']}"
    if "torch" in row:
        line += f"   torch {row['torch']}   ratio {row['ratio']:5.2f} ±{row['spread']:.0%}"
        line += f"   results differ by {row['difference']:.0e}"
    if "messages" in row:
        line += "   messages {} and {} ns".format(*row["messages"])
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=1, help="of both; default: 1")
    parser.add_argument("--only", default="", help="only the cases whose name holds this")
    parser.add_argument("--turns", type=int, default=15, help="turns of each; default: 15")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/...")
    args = parser.parse_args()
    simt.set_num_threads(args.threads)
    torch = None
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(args.threads)
    print(f"backend {minigrad.backends.get()}, {args.threads} thread(s)")
    rows = []
    for case in CASES:
        if args.only in case.name:
            before = messages.now() if args.threads > 1 else None
            rows.append(run(case, torch, args.turns))
            if before is not None:
                rows[-1]["messages"] = [before, messages.now()]
            show(rows[-1])
    if torch is None:
        print("torch is not installed: no ratios (pip install 'minigrad[parity]')")
    if args.json:
        measure.write_json(
            measure.results_path(f"training-{args.threads}-threads"), args.threads, rows
        )


if __name__ == "__main__":
    main()
