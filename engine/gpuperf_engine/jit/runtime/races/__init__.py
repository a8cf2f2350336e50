"""Runtime of generated code: races, that is accesses that conflict and that nothing orders."""
