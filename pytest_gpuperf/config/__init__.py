"""Options, settings, and what markers and calls declare."""
