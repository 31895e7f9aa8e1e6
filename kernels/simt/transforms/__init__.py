"""Passes over the normal form: canonicalisation, fission, storage, rows, interleaved blocks."""
