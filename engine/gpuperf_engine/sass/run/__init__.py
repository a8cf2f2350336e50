"""Running machine code: machine instructions as PTX that does the same, run by the engine on the inputs of a launch."""
