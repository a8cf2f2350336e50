"""Machine descriptions: one YAML file per GPU, read strictly; occupancy, targets and peak rates, which follow from their numbers
alone."""
