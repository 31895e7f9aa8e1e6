"""What is known of a kernel in normal form: types, uniformity, ranges, affine indices."""
