"""Predicted time: the input of the models, the models, causes of stalls, the estimate, and the calibration of machines."""
