"""The payload of a test report, from the process that ran the test to the controller."""

from __future__ import annotations

__all__ = ["PAYLOAD"]

#: attribute of a test report: plain JSON
PAYLOAD = "gpuperf_payload"
