"""What a step costs on this machine: measured once, kept on disk, drawn."""
