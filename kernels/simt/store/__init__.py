"""Generated modules on disk, and the keys under which they are found again."""
