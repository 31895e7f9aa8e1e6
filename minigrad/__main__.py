"""`python -m minigrad` is the command `minigrad`."""

import sys

from minigrad.cli import main

sys.exit(main())
