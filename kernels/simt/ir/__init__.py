"""A kernel in normal form, and the names and memory that its code refers to."""
