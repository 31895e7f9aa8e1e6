"""From a block's plan to the text of a Python module."""
