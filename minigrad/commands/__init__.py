"""The command line's subcommands, one a file: `HELP`, `add_arguments(parser)` and `run(args)`."""


class CommandError(Exception):
    """A mistake that one line explains: printed without a traceback, exit status 2."""
