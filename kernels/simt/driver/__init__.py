"""The passes in order, and the specialisations of a kernel by argument types and block."""
