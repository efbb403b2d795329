"""One target over several processes: tensor parallel by DeepSpeed, with ranks that may die."""
