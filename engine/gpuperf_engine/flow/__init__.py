"""Structure without values: basic blocks, dominators, loops, liveness, uniformity. PYTEST_DONT_REWRITE"""
