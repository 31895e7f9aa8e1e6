"""`vmap`: arrays of many elements, the rules that compute with them, and the function itself."""
