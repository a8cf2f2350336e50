"""The subcommands of ``gpuperf``, one module each."""
