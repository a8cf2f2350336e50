"""Predicted time: launches as input of the models, the models, their causes, the estimate, and calibration of machines."""
