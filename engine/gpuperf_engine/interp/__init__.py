"""The reference backend: every value is a NumPy array over the lanes of a warp."""
