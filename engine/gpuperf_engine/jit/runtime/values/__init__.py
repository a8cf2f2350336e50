"""Runtime of generated code: records of what accesses carry."""
