"""The simulation of one SM on machine code: the warps are traced, then their instructions are timed."""
