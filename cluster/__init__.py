"""What spans processes and machines: the policy channel between the policy actor and the replicas."""
