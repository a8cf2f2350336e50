"""What people and programs get to read: one document, rendered into several forms."""
