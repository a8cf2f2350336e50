"""Machine code without an assembler: what the PTX and the expansion table suggest, and the trace of a launch on it."""
