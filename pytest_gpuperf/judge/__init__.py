"""From launches to numbers, and from numbers to verdicts, with reasons."""
