"""Runtime of generated code: memory accesses of a whole warp."""
