"""Tests of the PTX front end."""
