"""The intermediate representation: the normal form, its program, CUDA's names, its memory."""
