"""Runtime of generated code: the simulation of one SM."""
