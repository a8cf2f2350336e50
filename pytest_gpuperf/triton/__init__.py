"""Triton's driver: unmodified Triton programs run on the engine, with torch on the CPU as their memory."""
