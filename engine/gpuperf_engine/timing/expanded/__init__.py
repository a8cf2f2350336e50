"""The simulation of one SM on pseudo machine instructions that are made from PTX, without an assembler."""
