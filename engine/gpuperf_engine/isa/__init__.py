"""What PTX instructions are: types, the instruction table and its rows, and the words in which meanings are written.

PYTEST_DONT_REWRITE
"""
