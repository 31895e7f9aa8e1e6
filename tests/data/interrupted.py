"""A program that reads with workers until a test interrupts it. Prints its workers' numbers."""

import itertools
import multiprocessing

from minigrad.utils.data import DataLoader
from tests.data.sources import Rows


def main() -> None:
    loader = DataLoader(Rows(1000), 2, num_workers=2, persistent_workers=True)
    try:
        for epoch in itertools.count():
            for _ in loader:
                if epoch == 0:
                    print(*[p.pid for p in multiprocessing.active_children()], flush=True)
                    epoch = 1
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise SystemExit(7) from None


if __name__ == "__main__":
    main()
