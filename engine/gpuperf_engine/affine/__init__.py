"""Symbolic values and the integer points for which they hold. PYTEST_DONT_REWRITE"""
