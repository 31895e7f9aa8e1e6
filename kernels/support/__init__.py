"""What both dialects stand on when they run on a CPU: errors, launch limits, OS threads, files."""
