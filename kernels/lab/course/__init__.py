"""Exercises with their judge and solutions, the ladders to compare, and the stepper."""
