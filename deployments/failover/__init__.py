"""Answers that outlive the replica that began them: `resilient: true`."""
