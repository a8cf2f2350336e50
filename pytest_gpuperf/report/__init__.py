"""Reports for people and programs: one document, rendered into several forms."""
