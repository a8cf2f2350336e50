"""One SM simulated on machine code: what its warps do is traced, then timed."""
