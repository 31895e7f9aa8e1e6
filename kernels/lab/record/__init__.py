"""A kernel run with every access recorded: its instrumented clone, and analyses of the records."""
