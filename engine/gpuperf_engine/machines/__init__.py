"""Machines: one YAML file per GPU, read strictly, and what follows from its numbers alone: occupancy, targets, peak rates."""
