"""Addresses in all threads of a grid: linear forms, contents of index arrays, values computed for all threads at once."""
