"""Repositories have their own tests, configuration and packages."""

collect_ignore = ["repositories"]
