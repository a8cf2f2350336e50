"""Value patterns: needless stores, copies and memsets of a program."""
