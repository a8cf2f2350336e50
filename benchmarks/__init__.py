"""The benchmark table (``python -m benchmarks``) and the generated documentation (``python -m benchmarks.docs``)."""
