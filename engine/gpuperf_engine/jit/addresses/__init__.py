"""What addresses are in all threads of a grid: linear forms, what arrays of indices hold, values computed for all threads at once."""
