"""Value patterns: what a program stores, copies and sets that it need not."""
