"""Counts without running every warp: classes of warps on affine values, and slices of programs. PYTEST_DONT_REWRITE"""
