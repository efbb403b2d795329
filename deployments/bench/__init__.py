"""The paper's experiments, on any machine: measured, kept, reported and compared."""
