"""Options, settings, and what markers and calls declare. PYTEST_DONT_REWRITE"""
