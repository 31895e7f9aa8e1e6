"""The subcommands of the command line, one per file: `HELP`, `add_arguments(parser)` and
`run(args)`."""


class CommandError(Exception):
    """An error of the user: printed as one line without a traceback, exit status 2."""
