"""A plain PTX interpreter that runs one thread at a time: the yardstick of the test suite.

It shares no code with the engine: own tokenizer, Python integers for every value, exact integer
arithmetic for floating point, own control-flow analysis. Readable first, fast enough second.
"""
