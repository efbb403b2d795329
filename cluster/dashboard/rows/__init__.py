"""The panels of the dashboard, as data: a file for each row, from top to bottom."""
