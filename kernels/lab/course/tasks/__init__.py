"""The exercises in the order in which to do them: what is asked, and the problems."""

from kernels.lab.course.tasks import basics, hardware, bug_hunts  # noqa: F401, I001 - in order
from kernels.lab.course.tasks.table import EXERCISES

__all__ = ["EXERCISES"]
