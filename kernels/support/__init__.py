"""Shared by both dialects on a CPU: errors, launch limits, a thread pool, the cache folder."""
