"""Exercises with their judge and solutions, ladders to compare, pictures of a block at barriers."""
