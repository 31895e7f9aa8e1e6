"""Analyses of the normal form: types, uniformity, ranges, affine conditions; SSA renaming."""
