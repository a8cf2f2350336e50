"""Runs machine code: translates machine instructions to equivalent PTX, which the engine runs on the inputs of a launch."""
