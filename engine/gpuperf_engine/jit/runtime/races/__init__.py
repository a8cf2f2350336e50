"""Runtime of generated code: detection of races, which are conflicting accesses that nothing orders."""
