"""Runtime of generated code: tensor copies and tensor memory."""
