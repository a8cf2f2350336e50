"""Runtime of generated code: records of the values that accesses transfer."""
