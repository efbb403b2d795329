"""What spans processes and machines: the channel between policy actor and replicas."""
