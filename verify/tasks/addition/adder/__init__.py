"""What both additions need of a small decoder: its stored numbers, rigorous forward passes, and runs by torch."""
