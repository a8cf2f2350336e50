"""Tests of the instruction table."""
