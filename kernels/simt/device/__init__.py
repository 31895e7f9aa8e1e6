"""The host side of `numba.cuda`: device arrays, streams, events, devices."""
