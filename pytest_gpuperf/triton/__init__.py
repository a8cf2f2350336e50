"""A driver for Triton: unmodified Triton programs run on the engine, with torch on the CPU as their memory."""
