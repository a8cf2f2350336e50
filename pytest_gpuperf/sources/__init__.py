"""Where PTX comes from, one module each. PYTEST_DONT_REWRITE"""
