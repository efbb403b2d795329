"""Where models come from: the embedded one, a local folder, or a hub."""
