"""The plan of a block: all that is decided between fission and printing."""
