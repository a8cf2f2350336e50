"""Structure without values: basic blocks, dominators, loops, liveness, uniformity."""
