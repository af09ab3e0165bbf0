"""What the values and settings of operations are: types and attributes."""
