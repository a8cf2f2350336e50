"""The subcommands of ``gpuperf``, one module each. PYTEST_DONT_REWRITE"""
