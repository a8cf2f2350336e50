"""Programs that bring their own launches: the device that they see, its errors, and switching it on when they are imported."""
